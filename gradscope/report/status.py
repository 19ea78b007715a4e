"""One line on stderr that tells a long run from a hung one. Only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def status_line() -> Iterator[Callable[[str], None] | None]:
    """Gives the function that puts words in the place of the last ones, None where stderr is no
    terminal. What it has shown is gone in the end."""
    from rich.console import Console
    from rich.control import Control
    from rich.segment import ControlType

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield None
        return
    erase = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
    has_shown = False

    def show(words: str) -> None:
        nonlocal has_shown
        has_shown = True
        console.control(erase)
        told = f"gradscope: {words}"
        console.print(told, end="", style="dim", overflow="crop", no_wrap=True)
        # The program prints to the same terminal: leave the cursor where its next line begins.
        console.control(Control(ControlType.CARRIAGE_RETURN))

    try:
        yield show
    finally:
        if has_shown:
            console.control(erase)
