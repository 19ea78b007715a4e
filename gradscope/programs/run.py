"""Runs a target in a child process, and gathers the facts that it sends."""

from __future__ import annotations

import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import field, replace
from typing import IO, TYPE_CHECKING

from gradscope.dataclass import dataclass
from gradscope.errors import CTRL_C
from gradscope.facts import OTHERS, Ending, Trace, plural
from gradscope.programs.channel import Final, Message, NoAnswer, Progress
from gradscope.programs.overlay import scratch_folder
from gradscope.programs.run_options import DEFAULTS, Repeat, RunOptions
from gradscope.programs.targets import Target
from gradscope.signals import ASKS_PLACE, HURRIED, PASSED_ON, heard, ignored, raise_from_now_on

if TYPE_CHECKING:
    from gradscope.programs.process import Child
    from gradscope.programs.ranks import Ranks

TICK = 0.05  # seconds between looks at the clock, at Ctrl-C and at the child
STOP_GRACE = 5.0  # seconds that a program has to unwind after we stopped it
END_GRACE = 60.0  # and for its exit handlers, where it ended by itself
INTERRUPT_GRACE = 0.6  # and after Ctrl-C, when somebody waits for the report
TWICE = 0.05  # within which a signal that comes again is the same one


def run(
    target: Target,
    options: RunOptions = DEFAULTS,
    *,
    patches: Mapping[str, str] | None = None,
    silent: bool = False,
    timeout: float | None = None,
    setup: Callable[[], None] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    measure: Callable[[], object] | None = None,
    repeat: Repeat | None = None,
    kept: Kept | None = None,
    ranks: Ranks | None = None,
) -> Trace:
    """Run a target once and return what was seen of it, however it ended.

    Every run starts from the same random state. `patches` maps paths to the source that stands in
    for these files; `setup` is called in the child before the program; `timeout` (seconds) comes
    before the options' limit. With `silent` the program prints nothing and reads nothing. Where
    the process cannot be forked, a fresh interpreter is started (`setup` must pickle then).

    `measure` makes, in the child, what is told of each backward (see `Observation`): the ops
    are not recorded then. `on_progress` is told the steps and the ops so far, many times a second.
    With `repeat` the run repeats an earlier one, and is silent. With `kept` snapshots are taken
    where that is possible, and the process then waits before its end for what is asked of them.
    With `ranks` the others are told of the end, and theirs ends this run; there are no snapshots,
    since a copy would share the connections.

    Raises GradscopeError where the target cannot be run, and KeyboardInterrupt where a repeated
    run is interrupted, or another one a second time.
    """
    from gradscope.programs.child import Job
    from gradscope.programs.load import files_of
    from gradscope.programs.process import start
    from gradscope.programs.witness import Witness
    from gradscope.record.sites import claim, shown_path

    silent = silent or repeat is not None
    raise_from_now_on()
    files = list(files_of(target))
    claim(files)
    with _faulthandler_file() as deaths, scratch_folder(repeat) as scratch:
        job = Job(
            target=target,
            options=options,
            patches=dict(patches or {}),
            silent=silent,
            deaths=deaths.fileno(),
            setup=setup,
            measure=measure,
            repeat=repeat,
            scratch=scratch,
            done=mmap.mmap(-1, 8),
        )
        limit = options.time_limit if timeout is None else timeout
        # A KeyboardInterrupt could tear a message in two.
        interrupts: list[float] = []
        passed_on: dict[str, float] = {}  # when each last came
        with heard([signal.SIGINT], lambda _: interrupts.append(time.monotonic())):
            with ranks.starting() if ranks is not None else nullcontext():
                child = start(job, snapshots=kept is not None and ranks is None)

            def pass_on(number: int) -> None:
                # Sent to a process and to its group at once, as `timeout` does, it comes twice
                # where a bare program would have seen one.
                now, name = time.monotonic(), signal.Signals(number).name
                is_new = now - passed_on.get(name, -1.0) > TWICE
                if is_new and not witness.has_seen(number):
                    child.pass_on(number)
                passed_on[name] = time.monotonic()

            # The program ignores what we do, until it has a handler of its own.
            unheeded = ignored()
            numbers = () if silent else {*PASSED_ON, *unheeded}
            witness = Witness(not (child.leads or silent) and os.name == "posix")
            # Behind the handlers, which are none of its own: what we ignore ends it.
            with heard(numbers, pass_on, though_ignored=True), witness:
                is_trial, has_come = repeat is not None, witness.has_seen
                wait = _Wait(child, limit, interrupts, on_progress, is_trial, ranks, has_come)
                wait.until_gone()
        if kept is not None and wait.snapshots:
            kept.hold(wait)
        if len(interrupts) > 1 or (interrupts and repeat is not None):
            raise KeyboardInterrupt  # nobody wants to see how half a trial ended
        trace = wait.trace(target.name, deaths, job.done)
    trace = replace(trace, file=shown_path(files[0]) if files else "")
    if ranks is not None:
        ranks.ended(trace, wait.moved)
    # One Ctrl-C may come when the program has told its last word, and ended of itself.
    hurried = {*HURRIED} - {one.name for one in unheeded}
    in_a_hurry = bool(interrupts) or not hurried.isdisjoint(passed_on)
    signals = tuple(passed_on)
    return replace(trace, ending=replace(trace.ending, in_a_hurry=in_a_hurry, signals=signals))


def _faulthandler_file() -> IO[str]:
    """An empty file for faulthandler; on Linux in memory, since the disk may be full."""
    if sys.platform == "linux":
        return open(os.memfd_create("deaths"), "w+", encoding="utf-8", errors="replace")
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


class Kept:
    """The process of a run that has told everything, kept alive for its snapshots until the context
    ends: only then does the program see its own end."""

    def __init__(self) -> None:
        self._first: _Wait | None = None
        self._further: _Wait | None = None  # a copy of that one, which has snapshots of its own

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The backward passes before each, newest first."""
        held = filter(None, (self._further, self._first))
        return tuple(step for one in held for step in one.snapshots)

    def hold(self, wait: _Wait) -> None:
        self._first = wait

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the program see its end. Nothing more is asked."""
        self._let_go()
        if self._first is not None:
            first, self._first = self._first, None
            first.release()

    def _let_go(self) -> None:
        """Of the copy: as long as it is there, the one that it comes from does not answer."""
        if self._further is not None:
            further, self._further = self._further, None
            further.kill()
            further.scratch.close()

    def ask(
        self,
        step: int,
        options: RunOptions,
        repeat: Repeat,
        *,
        patches: Mapping[str, str] | None = None,
        setup: Callable[[], None] | None = None,
        ahead: int | None = None,
        timeout: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Trace:
        """What comes of going on from the snapshot of that step, as a repeated run does: the facts
        of the steps before it are those of the first run. The parameters are those of `run`; a
        limit on steps counts from the start. There is a further snapshot then, where that is
        possible: that after `ahead` backward passes of this run, until one before it is asked.

        Raises NoAnswer, OSError where there is no room for what it writes, and KeyboardInterrupt.
        """
        from gradscope.programs.snapshots.questions import Question, ask

        if self._further is not None and step not in self._further.snapshots:
            self._let_go()
        held = self._further or self._first
        assert held is not None and held.child.control is not None
        interrupts: list[float] = []
        with _faulthandler_file() as deaths, ExitStack() as stack:
            scratch = stack.enter_context(scratch_folder(repeat))
            question = Question(options, repeat, scratch, dict(patches or {}), setup, ahead)
            with heard([signal.SIGINT], lambda _: interrupts.append(time.monotonic())):
                child = ask(held.child.control, step, question, deaths.fileno())
                wait = _Wait(child, timeout, interrupts, on_progress, is_trial=True)
                wait.until_gone()
            if wait.snapshots:
                self._further, wait.scratch = wait, stack.pop_all()
            if interrupts:
                raise KeyboardInterrupt
            return wait.answer()


@dataclass(eq=False)
class _Wait:
    """The parent's side of one run: takes messages and keeps the limits. `interrupts` tell when
    each Ctrl-C came; `has_come`, whether a signal that came to us has come to the child as well."""

    child: Child
    limit: float | None
    interrupts: list[float]
    on_progress: Callable[[int, int], None] | None
    is_trial: bool = False
    ranks: Ranks | None = None
    has_come: Callable[[int], bool] = lambda number: False
    scratch: ExitStack = field(default_factory=ExitStack)  # ends with the folder of what it wrote
    _progress: Progress = Progress(0, 0)
    _latest: Trace | None = None
    _final: Final | None = None
    _asked_to_end: str = ""  # why we did: "Ctrl-C", "the time limit of 5 s", `OTHERS`
    _forwarded: bool = False
    _status: int | None = None

    def __post_init__(self) -> None:
        self._started = self.moved = time.monotonic()  # when a step was last over
        self._latest_came = self._gone = self._started
        self._ends_by = self._started + self.limit if self.limit else float("inf")

    def until_gone(self) -> None:
        from gradscope.programs.process import wait

        try:
            while self._status is None and not self.snapshots:
                if not self._listen():
                    self._status = wait(self.child, TICK)
                if self._status is None:
                    self._keep_limits()
            self._gone = time.monotonic()
        finally:
            if not self.snapshots:
                self.kill()

    def kill(self) -> None:
        self.child.kill()
        self.child.connection.close()
        self._hang_up()

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Of a child that has told everything, and waits to be asked about these steps."""
        return self._final.snapshots if self._final is not None else ()

    def _hang_up(self) -> None:
        """Nothing more is asked of snapshots."""
        if self.child.control is not None:
            self.child.control.close()
        if self._final is not None:
            self._final = replace(self._final, snapshots=())

    def release(self) -> None:
        """The program ends as it would have without snapshots."""
        self._hang_up()
        self._ends_by = time.monotonic() + self._grace()
        self.until_gone()

    def answer(self) -> Trace:
        """The facts that a copy of the program has told."""
        if self._final is None:
            raise NoAnswer
        return self._final.trace

    def _listen(self) -> bool:
        """Take one message if there is one; False once the child's end is closed."""
        connection = self.child.connection
        try:
            if connection.poll(TICK):
                self._take(connection.recv())
            elif (status := self.child.poll()) is not None and not connection.poll():
                # Workers of the program may hold the pipe open: its end is then no news. And the
                # last word may have come since the first look, from a child that went at once.
                self._status = status
        except (EOFError, OSError):
            return False
        return True

    def _take(self, message: Message) -> None:
        match message:
            case Progress():
                if message.steps != self._progress.steps:
                    self.moved = time.monotonic()
                self._progress = message
            case Trace():
                self._latest, self._latest_came = message, time.monotonic()
            case Final():
                self._final = message
                if self.ranks is not None and not self._asked_to_end:
                    self.ranks.ended(message.trace, self.moved)
                if self._asked_to_end:
                    self._hang_up()
                else:
                    self._ends_by = time.monotonic() + self._grace()
            case Exception():
                raise message

    def _grace(self) -> float:
        stopped = self._final is not None and self._final.trace.ending.kind == "stopped"
        return STOP_GRACE if stopped else END_GRACE

    def _keep_limits(self) -> None:
        now = time.monotonic()
        if self.on_progress and not (self._final or self._asked_to_end):
            self.on_progress(self._progress.steps, self._progress.ops)
        if self.interrupts and not self._asked_to_end:
            self._asked_to_end = "Ctrl-C"
            self._ends_by = self.interrupts[0] + INTERRUPT_GRACE
        if self.ranks is not None and not (self._final or self._asked_to_end):
            if self.ranks.is_called_off((now - self._started) / (self._progress.steps + 1)):
                self._asked_to_end = OTHERS
                self._ends_by = now + INTERRUPT_GRACE
        if len(self.interrupts) > 1 or (self.interrupts and self.is_trial):
            self._ends_by = now
        if self._asked_to_end and not self._forwarded and self._final is None:
            self._forwarded = True
            if not (self.interrupts and self.has_come(signal.SIGINT)):
                self.child.interrupt()
        if now < self._ends_by:
            return
        if self._final is None and not self._asked_to_end:
            self._asked_to_end = f"the time limit of {self.limit:g} s"
            self._ends_by = now + INTERRUPT_GRACE
        else:
            if ASKS_PLACE is not None and self._final is None:
                self.child.pass_on(ASKS_PLACE)
                time.sleep(TICK)
            self.child.kill()
            self._status = self.child.poll() or 0

    def trace(self, target: str, deaths: IO[str], done: mmap.mmap | None = None) -> Trace:
        """The facts of the run, with its true ending."""
        from gradscope.programs.endings import ending_of_status
        from gradscope.programs.process import preload

        if self._final is not None:
            preload(self._final.imported)
            trace = self._final.trace
        else:
            deaths.seek(0)
            ending = ending_of_status(self._status or 0, deaths.read())
            trace = replace(self._latest or Trace(target), ending=ending)
            if self._latest is not None and not self._asked_to_end:
                lost = self._gone - self._latest_came
                made = int.from_bytes(done[:], "little") if done is not None else 0
                unseen = max(0, made - len(trace.steps))
                last = f"{lost:.2g} s" + (f" ({plural(unseen, 'step')})" if unseen else "")
                note = f"the last {last} of the program were not seen"
                trace = replace(trace, notes=(*trace.notes, note), unseen=unseen)
        if self._asked_to_end and trace.ending.kind != "stopped":
            code = CTRL_C if self._asked_to_end == "Ctrl-C" else None
            before = trace.ending
            ending = Ending("interrupted", self._asked_to_end, code, "", before.location)
            ending = replace(ending, at_limit=code is None, waits=before.waits)
            trace = replace(trace, ending=ending)
        return trace
