"""One line on stderr that tells a long run from a hung one. Only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradscope.target.messages import Progress

SILENT_FOR = 2.0  # seconds: a short run needs no line
EVERY = 0.5  # seconds


@contextmanager
def progress_line() -> Iterator[Callable[[Progress], None] | None]:
    """Gives the function that shows progress, None where stderr is no terminal."""
    from rich.console import Console
    from rich.control import Control
    from rich.segment import ControlType

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield None
        return
    erase = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
    shown_at = SILENT_FOR - EVERY

    def show(progress: Progress) -> None:
        nonlocal shown_at
        if progress.seconds < shown_at + EVERY:
            return
        shown_at = progress.seconds
        steps = f"{progress.steps:,} step{'s' * (progress.steps != 1)}"
        told = f"gradscope: {steps}, {progress.ops:,} ops, {progress.seconds:.0f} s"
        console.control(erase)
        console.print(told, end="", style="dim", overflow="crop", no_wrap=True)
        # The program prints to the same terminal: leave the cursor where its next line begins.
        console.control(Control(ControlType.CARRIAGE_RETURN))

    try:
        yield show
    finally:
        if shown_at >= SILENT_FOR:
            console.control(erase)
