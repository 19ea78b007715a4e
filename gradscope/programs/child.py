"""The child process: one run of the user's program under the recorder."""

import faulthandler
import mmap
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from gradscope.dataclass import dataclass
from gradscope.errors import CTRL_C, GradscopeError
from gradscope.facts import Effect, Ending, Hurdle, Trace
from gradscope.programs import native, redirect, streams
from gradscope.programs.audit import Effects, own_work
from gradscope.programs.channel import Channel, ChildFault, Final, NoAnswer, Progress
from gradscope.programs.endings import ending_of, is_ours, not_importable, tell_hook
from gradscope.programs.load import files_of, install, run_script
from gradscope.programs.loss import Run, prepare_function, prepare_parts
from gradscope.programs.overlay import Overlay
from gradscope.programs.run_options import Conditions, Repeat, RunOptions
from gradscope.programs.snapshots.files import Identity, separate
from gradscope.programs.snapshots.sleepers import Snapshots, Woken
from gradscope.programs.snapshots.splices import Unswappable
from gradscope.programs.snapshots.swap import Swapped
from gradscope.programs.step import play, store
from gradscope.programs.step.tape import Tape
from gradscope.programs.targets import Function, KeptStep, Parts, Script, Target
from gradscope.record import StopTrace
from gradscope.record.observation import Observation
from gradscope.record.sites import calls_program, claim
from gradscope.signals import ASKS_PLACE, as_python_starts, leave, undisturbed

PROGRESS_EVERY = 0.1  # seconds
INTERIM_SHARE = 0.01  # of the run's time may go into telling the facts so far
_UNINTERRUPTED = 3_600.0  # seconds: until another thread has its turn
SLOW_MODULES = ("torch._dynamo", "torch._inductor", "torch.distributed.tensor")


@dataclass(frozen=True, slots=True)
class Job:
    """What the child is to run, and how."""

    target: Target
    options: RunOptions
    patches: Mapping[str, str]
    silent: bool  # nothing that the program prints is shown, and it reads nothing
    deaths: int  # file descriptor for what faulthandler writes
    setup: Callable[[], None] | None = None
    measure: Callable[[], Any] | None = None  # measure sizes only, and leave the ops alone
    repeat: Repeat | None = None
    scratch: str = ""  # the folder for what a repeated run writes
    done: mmap.mmap | None = None  # the steps so far, in memory that a death leaves to the parent


class Messenger:
    """Observes the program and sends messages: progress, the facts so far, the final trace. In a
    copy of the program it answers the question that a snapshot was asked."""

    def __init__(self, job: Job, channel: Channel, snapshots: Snapshots | None) -> None:
        self.observation = self._observation(job)
        self._target = job.target.name
        self._channel = channel
        self._last_progress = 0.0
        self._next_interim = 0.0
        self._repeat = job.repeat
        self._done = job.done
        self._snapshots = snapshots
        self._swapped: Swapped | None = None
        self._overlay: Overlay | None = None  # of a copy
        self._keeping = job.options.keeping
        self._tape: Tape | None = None
        self.effects = Effects(
            lambda: self.observation.steps, self._may_not if job.repeat is not None else None
        )

    def _observation(self, job: Job) -> Observation:
        options = job.options
        return Observation(
            steps=options.steps,
            passes=options.passes,
            keep_going=options.keep_going or job.measure is not None,
            alone=True,
            full_from=options.full_from,
            on_step=self._tell,
            on_pass=self._count,
            on_stop=self.end,
            check_functions=options.custom_backward,
            hazards=options.hazards,
            ends_with_update=job.repeat is not None and job.repeat.after_update,
            between_steps=self._between_steps,
            measure=job.measure() if job.measure is not None else None,
            each_op=job.measure is None,
        )

    def _count(self, steps: int) -> None:
        """Called after every backward pass."""
        if self._done is not None:
            self._done[:] = steps.to_bytes(len(self._done), "little")

    def _tell(self, steps: int, ops: int) -> None:
        """Called after backward passes."""
        self._count(steps)
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_EVERY:
            self._last_progress = now
            self._channel.send(Progress(steps, ops))
        if now >= self._next_interim:
            self._channel.send(self._trace(Ending("stopped")))
            spent = time.monotonic() - now
            self._next_interim = now + spent / INTERIM_SHARE

    def keep(self, steps: int) -> None:
        """After so many backward passes: write down what follows, where that is to be kept."""
        keeping, seen = self._keeping, self.observation
        if keeping is not None and self._tape is None and steps >= keeping.since:
            self._tape = Tape(seen, keeping.most)
            self._tape.begin(steps)

    def _write_kept(self) -> None:
        if self._keeping is not None and self._tape is not None:
            with own_work():
                store.write(self._tape, Path(self._keeping.folder), self._keeping.target)

    def _between_steps(self, observation: Observation) -> None:
        self.keep(observation.steps)
        if self._snapshots is None or not self._snapshots.is_due(observation.steps):
            return
        if self.effects.has_database or not self._has_remembered():
            self._snapshots.put_off(Hurdle.SHARED)
            return
        if not observation.is_clean():
            self._snapshots.put_off()
            return
        woken = self._snapshots.taken(observation.steps, self.effects.descriptors)
        if woken is not None:
            self._answer(woken, self._snapshots.given, observation)

    def _has_remembered(self) -> bool:
        """Whether a copy of this process finds the files that it wrote, if it is a copy itself."""
        if self._overlay is None:
            return True
        try:
            with own_work():
                self._overlay.remember()
                return not os.listdir(self._overlay.temporary)  # others have them under their names
        except OSError:
            return False

    def _answer(self, woken: Woken, given: Collection[Identity], observation: Observation) -> None:
        """Called in a copy of the process: go on as a repeated run, as the question says."""
        self._channel.repeat(Connection(woken.carried.messages, readable=False))
        self._done = None
        try:
            faulthandler.enable(woken.carried.deaths, all_threads=False)
            with own_work(), self._channel.modules.found():
                asked = woken.question()
                self._repeat = asked.repeat
                if self._snapshots is not None:
                    self._snapshots.go_on(woken.carried, asked.ahead)
                    self._snapshots.batches.on_end = self._end_here
                overlay = self._overlay or Overlay(asked.scratch, asked.repeat.made)
                if self._overlay is not None:  # a copy of a copy
                    overlay.move(asked.scratch)
                overlay.restore(asked.repeat.folders)
                separate(woken.files, given, overlay)
                if asked.patches:
                    self._swapped = Swapped(asked.patches)
                if self._overlay is None:
                    redirect.install(overlay)
                else:
                    redirect.use_temporary(overlay)
                self._overlay = overlay
                options = asked.options
                observation.repeat(
                    steps=options.steps,
                    passes=options.passes,
                    keep_going=options.keep_going,
                    full_from=options.full_from,
                    ends_with_update=asked.repeat.after_update,
                )
                if asked.setup:
                    asked.setup()
                self._keeping = options.keeping
            self.keep(observation.steps)
            self.effects.begin_again(self._may_not)
        except (Unswappable, OSError):
            self._channel.close(NoAnswer())
        except BaseException:
            self._channel.close(ChildFault(traceback.format_exc()))

    def let_go(self) -> None:
        """All is told: what was seen of the program holds much of it, which is to end by itself."""
        self.effects.end()
        self.observation.forget()
        self.observation, self._tape = Observation(each_op=False), None

    def never_stop(self) -> None:
        self.observation.never_stop()

    def before_fork(self) -> None:
        if self._snapshots is not None and not self.observation.context.is_experiment:
            self._snapshots.before_fork()

    def _may_not(self, effect: Effect) -> None:
        """A repeated run is about to do something outside, which it may, if at all, before the end
        of the last step."""
        assert self._repeat is not None
        if self._repeat.allowed and not self.observation.is_at_limit:
            return
        if threading.current_thread() is not threading.main_thread():
            sys.setswitchinterval(_UNINTERRUPTED)  # the facts must not change while they are told
        self._end_here()

    def _end_here(self) -> NoReturn:
        """A repeated run cannot go on."""
        if self._channel.is_open:
            # Nobody sees whether a bad gradient that the program holds will be taken: it counts.
            trace = replace(self._trace(Ending("finished")), ending=Ending("stopped"))
            self._close(trace)
        leave(0)

    def end(self, ending: Ending) -> None:
        """Send the final trace, unless it was sent before."""
        if self._channel.is_open:
            streams.flush()
            self._close(self._trace(ending))

    def _close(self, trace: Trace) -> None:
        if self._swapped is not None and not self._swapped.holds:
            self._channel.close(NoAnswer())
        self._write_kept()
        steps: tuple[int, ...] = ()
        if self._snapshots is not None:
            with own_work():
                self._snapshots.batches.fetch()
            steps, trace = self._snapshots.steps, replace(trace, hurdle=self._snapshots.hurdle)
        imported = tuple(name for name in SLOW_MODULES if name in sys.modules)
        serve = self._snapshots.serve if self._snapshots is not None else lambda: None
        self._channel.close(Final(trace, imported, steps), serve)

    def writes(self, path: Any) -> Any:
        """A native writer of the program is about to write a file."""
        return self.effects.writes(path) if self._repeat is None else path

    def _trace(self, ending: Ending) -> Trace:
        with self._channel.modules.found():
            trace = self.observation.trace(self._target, ending)
        effects = self.effects
        return replace(trace, processes=tuple(effects.processes), effects=effects.found())


def run_child(job: Job, connection: Connection, control: socket.socket | None = None) -> NoReturn:
    """Run the job and leave the process the way that python would, exit handlers included. With
    `control` there are snapshots, which are asked over it once the facts were told."""
    channel = Channel(connection, repeated=job.repeat is not None)
    snapshots = None
    if control is not None:
        snapshots = Snapshots(control, (connection.fileno(), job.deaths), job.done)
    code = 3
    try:
        _redirect(job)
        code = _run(job, channel, snapshots)
        streams.flush()
        streams.finish_as_python_does()
    except KeyboardInterrupt:
        code = CTRL_C  # before the program began, or after it had ended
    except BaseException:
        channel.close(ChildFault(traceback.format_exc()))
    leave(code)


def _run(job: Job, channel: Channel, snapshots: Snapshots | None) -> int:
    """Run the program, report how it ended, and return its exit code."""
    if job.patches:
        install(job.patches)
    sys.excepthook = sys.__excepthook__  # the command line has put one of its own there
    claim(files_of(job.target))  # in a fresh interpreter nobody has yet
    calls_program(_run.__code__)
    if job.repeat is not None:
        redirect.install(Overlay(job.scratch, job.repeat.made))
    messenger = Messenger(job, channel, snapshots)
    if job.repeat is None:
        native.install(messenger.writes)
    observation = messenger.observation
    if hasattr(os, "register_at_fork"):
        # A process that the program forks has nobody to report to, and is not stopped.
        os.register_at_fork(before=messenger.before_fork, after_in_child=messenger.never_stop)
    _tell_of_sudden_exits(messenger)
    conditions = job.options.conditions
    try:
        conditions.apply()
        run, inputs = _prepare(job.target, conditions, job.patches)
        observation.context.names.given = inputs
        conditions.enter_autocast()
        if job.setup:
            job.setup()
        with ExitStack() as afterwards, observation:
            messenger.keep(0)
            try:
                run(lambda: observation.steps > 0)
            finally:
                afterwards.enter_context(channel.modules.found())
    except StopTrace:
        return 0
    except GradscopeError as error:
        channel.close(error)
        return 2
    except BaseException as error:
        with undisturbed(), channel.modules.found():  # the ending is told once
            code = _ended_by(error, job, messenger, channel)
        tell_hook(error)
        return code
    else:
        with undisturbed():
            messenger.end(Ending("finished"))
        return 0
    finally:
        messenger.let_go()


def _ended_by(error: BaseException, job: Job, messenger: Messenger, channel: Channel) -> int:
    """Report what the program let out, and return its exit code."""
    refusal = None if messenger.observation.steps else not_importable(job.target.name, error)
    if refusal is not None:
        channel.close(refusal)
        return 2
    if isinstance(error, Exception) and is_ours(error):
        raise error
    ending = ending_of(error)
    messenger.end(ending)
    return ending.code or 0


def _tell_of_sudden_exits(messenger: Messenger) -> None:
    """Python itself has no chance to do anything at an `os._exit`."""

    def exit_at_once(status: int) -> NoReturn:
        messenger.end(Ending("exited", f"os._exit({status})", status))
        leave(status)

    os._exit = exit_at_once


def _prepare(
    target: Target, conditions: Conditions, patches: Mapping[str, str]
) -> tuple[Run, dict[str, Any]]:
    """A function that runs the target, and the inputs that it is given, by name."""
    match target:
        case Script():
            return (lambda _: run_script(target, patches)), {}
        case Function():
            return prepare_function(target, conditions)
        case Parts():
            return prepare_parts(target, conditions), {}
        case KeptStep():
            play_step = play.prepare(target.folder)
            return (lambda _: play_step()), {}


def _redirect(job: Job) -> None:
    faulthandler.enable(job.deaths, all_threads=False)
    if ASKS_PLACE is not None:
        faulthandler.register(ASKS_PLACE, job.deaths, all_threads=False)
    as_python_starts()
    if job.silent:
        streams.silence()
    elif job.options.stdout_to_stderr:
        streams.join_stdout_to_stderr()
