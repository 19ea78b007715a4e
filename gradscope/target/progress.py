"""How far a run is, on a line of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradscope.facts import plural
from gradscope.report.status import status_line
from gradscope.target.messages import Progress

SILENT_FOR = 2.0  # seconds: a short run needs no line
EVERY = 0.5  # seconds


@contextmanager
def progress_line() -> Iterator[Callable[[Progress], None] | None]:
    """Gives the function that shows progress, None where stderr is no terminal."""
    with status_line() as say:
        if say is None:
            yield None
            return
        shown_at = SILENT_FOR - EVERY

        def show(progress: Progress) -> None:
            nonlocal shown_at
            if progress.seconds < shown_at + EVERY:
                return
            shown_at = progress.seconds
            done = f"{plural(progress.steps, 'step')}, {plural(progress.ops, 'op')}"
            say(f"{done}, {progress.seconds:.0f} s")

        yield show
