"""One line on stderr that tells a long run from a hung one. Only on a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum

from gradscope.dataclass import dataclass
from gradscope.facts import plural

SILENT_FOR = 2.0  # seconds: a short run needs no line
EVERY = 0.5  # seconds


class Doing(Enum):
    """The stages of a command that take time, in words."""

    LOADING = "loading PyTorch"
    RUNNING = "running{counted}"
    DIAGNOSING = "looking for the cause"
    SAVING = "running again, to save the failing step{step}"
    REPLAYING = "running again, to look at the failing step in full{step}"
    FOLLOWING = "following the wrong gradient{step}"
    SLOWING = "trying a lower learning rate{step}"
    SEARCHING = "looking for a patch for fix{number}"
    TRYING = "trying fix{number}{step}"
    WRITING = "writing the report"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is being done: for fix `number` of `of`, in a run that is at step `step` of `steps`."""

    doing: Doing
    number: int = 0
    of: int = 0
    step: int = 0
    steps: int = 0
    ops: int = 0


class Stages:
    """Where the work stands, for `show`, which is called whenever that changes."""

    def __init__(self, show: Callable[[Stage | None], None] | None = None) -> None:
        self._show = show
        self.now = Stage(Doing.LOADING)

    def begin(self, doing: Doing, number: int = 0, of: int = 0) -> None:
        self._tell(Stage(doing, number, of))

    def progress(self, steps: int | None) -> Callable[[int, int], None]:
        """For a run of at most `steps` steps that belongs to the stage: what it calls with the
        steps and the ops so far."""
        most = steps or 0
        return lambda step, ops: self._tell(replace(self.now, step=step, steps=most, ops=ops))

    def clear(self) -> None:
        """Before something else is printed."""
        if self._show is not None:
            self._show(None)

    def _tell(self, stage: Stage) -> None:
        self.now = stage
        if self._show is not None:
            self._show(stage)


def worded(stage: Stage) -> str:
    """ "trying fix 2 of 3, step 40 of 150"."""
    of = f" of {stage.steps:,}" if stage.steps else ""
    counted = ((stage.step, "step"), (stage.ops, "op"))
    return stage.doing.value.format(
        number=f" {stage.number} of {stage.of}" if stage.of else "",
        step=f", step {stage.step:,}{of}" if stage.step else "",
        counted="".join(f", {plural(count, one)}" for count, one in counted if count),
    )


@contextmanager
def stage_line(started: float) -> Iterator[Stages]:
    """Shows each stage on the terminal, with the seconds since the command `started`, by
    `time.monotonic`."""
    with status_line() as say:
        if say is None:
            yield Stages()
            return
        began = shown_at = time.monotonic()
        shown = Stage(Doing.LOADING)

        def show(stage: Stage | None) -> None:
            nonlocal began, shown, shown_at
            if stage is None:
                say("")
                return
            now = time.monotonic()
            is_new = (stage.doing, stage.number) != (shown.doing, shown.number)
            shown = stage
            if is_new:
                began = now
            if stage.doing is Doing.RUNNING and now - began < SILENT_FOR:
                if is_new:
                    say("")  # what the program prints must not be mixed with our last words
                return
            if is_new or now - shown_at >= EVERY:
                shown_at = now
                say(f"{worded(stage)}, {now - started:.0f} s")

        stages = Stages(show)
        say(worded(stages.now))
        yield stages


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
        if not words:
            return
        line = f"gradscope: {words}"
        console.print(line, end="", style="dim", overflow="crop", no_wrap=True)
        # The program prints to the same terminal: leave the cursor where its next line begins.
        console.control(Control(ControlType.CARRIAGE_RETURN))

    try:
        yield show
    finally:
        if has_shown:
            console.control(erase)
