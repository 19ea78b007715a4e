"""The recorder: runs around a program, step after step, and gives a `Trace`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from gradscope.facts import Ending, Kind, Setting, Step, Trace
from gradscope.record.context import RunContext
from gradscope.record.depth import Depth
from gradscope.record.environment import environment
from gradscope.record.events.examine import Examiner
from gradscope.record.events.masks import Hidden
from gradscope.record.events.reads import NanReads
from gradscope.record.events.symptoms import Symptoms
from gradscope.record.instrument import tell
from gradscope.record.limit import FIRST_ERROR, LastUpdate, Limit, StopTrace
from gradscope.record.margins import Margins
from gradscope.record.mode import RecordingMode
from gradscope.record.modes import is_on
from gradscope.record.oprun import NodeOps, OpRun
from gradscope.record.optimizers import Work, bad_settings
from gradscope.record.overwrites import Overwrites
from gradscope.record.passes import BackwardPass
from gradscope.record.patches import install
from gradscope.record.probes.function_checks import FunctionChecks
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site, forget_names, place_of, user_site
from gradscope.record.tracing import computes_values, unobserved
from gradscope.record.watching import Watching

_FAULTS_TOLD = 3
_SETTINGS_KEPT = 64
_CAPTURED = "the ops of CUDA graphs were not observed, neither captured nor replayed"


class Steps:
    """Those that are over, kept as plain as they came: one is added at each backward."""

    def __init__(self) -> None:
        self._seen: list[tuple[float | None, float, int, Site, bool]] = []
        self._clock = time.perf_counter()
        self._ops = 0

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, loss: float | None, ops: int, site: Site, in_full: bool) -> None:
        """After so many `ops` in all."""
        now = time.perf_counter()
        self._seen.append((loss, now - self._clock, ops - self._ops, site, in_full))
        self._clock, self._ops = now, ops

    def first(self, count: int) -> Steps:
        found = Steps()
        found._seen = self._seen[:count]
        return found

    def facts(self) -> tuple[Step, ...]:
        return tuple(
            Step(index, loss, seconds, ops, place_of(site), in_full)
            for index, (loss, seconds, ops, site, in_full) in enumerate(self._seen)
        )


class Recorder:
    """Context manager that records the ops of the thread that enters it: of every step, or as
    `full_from` says (see `Depth`), and of the others whether what they train with is finite.

    Stops the program (by `StopTrace`) at the first error unless `keep_going`, and where `steps` or
    `passes` say (see `Limit`): when the next backward begins, or, `ends_with_update`, once the
    optimizers have taken the last one's gradients. `on_stop` is called once, before that, in the
    program's thread, `on_step` after each backward, with the passes and the ops so far.
    Losses and gradients are bit-identical with and without it; the RNG streams are untouched.

    Not observed: ops of other threads, code inside compiled or exported programs that bypasses
    dispatch, and what C++ extensions do to memory on their own.
    """

    def __init__(
        self,
        *,
        steps: int | None = 100,
        passes: int | None = None,
        keep_going: bool = False,
        on_step: Callable[[int, int], None] = lambda steps, ops: None,
        on_stop: Callable[[Ending], None] = lambda ending: None,
        check_functions: bool = True,
        hazards: bool = False,
        ends_with_update: bool = False,
        full_from: int | None = 0,
    ) -> None:
        self.limit = Limit(steps, passes)
        self.keep_going = keep_going
        self.on_step = on_step
        self.on_stop = on_stop
        self.context = context = RunContext()
        self.symptoms = Symptoms(context, self._confirmed)
        self.hidden = Hidden(context)
        self.reads = NanReads(context, lambda: self.mode.window.close())
        self.margins = Margins(context) if hazards else None
        self.examiner = Examiner(context, self.symptoms.note_bad_write, self.reads.note_compared)
        self.functions = FunctionChecks(lambda: context.step) if check_functions else None
        self.overwrites = Overwrites(context.journal)
        self.mode: RecordingMode = RecordingMode(context, self)
        self.depth = Depth(self.mode, full_from)
        self.watching = Watching(context, self.symptoms, self.depth)
        # Told of a tensor that an op outside of backward and of optimizers is about to write.
        self.on_write: Callable[[OpInfo, Any, Any], None] = lambda info, tensor, frame: None
        # Told of operands and result of each op outside of both; and of those of a sum.
        self.on_operands: Callable[[OpInfo, Any, Any, Any], None] = lambda *told: None
        self.on_result: Callable[[Any, Any, Any], None] = lambda *told: None
        self._ending = Ending("stopped")
        self.halted, self.nested = False, 0  # backward passes (reentrant checkpoint)
        self.steps = Steps()
        self.notes: list[str] = []
        self.settings: list[Setting] = []
        self.elsewhere: dict[str, None] = {}  # names of other threads that ran backward, in order
        self.faults = 0
        self.last = LastUpdate(ends_with_update)
        self._stack = ExitStack()

    def __enter__(self) -> Recorder:
        self.begin()
        tell(self._stack, self, elsewhere=self.elsewhere)
        return self

    def begin(self) -> None:
        """Of several that observe a run."""
        install(self, self._stack)
        self._stack.enter_context(self.depth)

    def __exit__(self, *failure: object) -> None:
        with unobserved():
            self.watching.finish()
        self._stack.close()
        self.mode.leave(())
        self.context.module = None
        forget_names()

    # Asked by the mode

    def examine(self, op: OpRun) -> None:
        """The closer look."""
        self.shielded(op.info.name, self.examiner.examine, op)

    def measure_margins(self, op: OpRun) -> None:
        if self.margins is not None:
            self.shielded(op.info.name, self.margins.measure, op)

    def note_write(self, info: OpInfo, tensor: Any, frame: Any) -> None:
        """An op outside of backward and of optimizers is about to write a tensor."""
        self.on_write(info, tensor, frame)
        self.shielded(info.name, self.overwrites.note, info, tensor, frame)

    def note_read(self, tensor: Any, value: float | None, frame: Any) -> None:
        """The program made a Python number of a tensor, or (None) a text, an array of it all."""
        self.shielded("item", self.reads.note, tensor, value, frame)

    def check_overwrites(self, running: NodeOps, args: tuple[Any, ...]) -> None:
        self.shielded("backward", self.overwrites.check, running, args, self.context.step)

    def finish_node(self, ops: NodeOps) -> None:
        self.shielded(ops.node.name(), self.examiner.finish_node, ops)

    def shielded(self, what: str, look: Callable[..., None], *args: Any) -> None:
        """A fault of ours must not become the program's: it costs what we would have said."""
        try:
            look(*args)
        except Exception as fault:
            self.faults += 1
            if self.faults <= _FAULTS_TOLD:
                self.notes.append(f"could not look at `{what}`: {type(fault).__name__}: {fault}")

    def sees_ops(self) -> bool:
        """Whether the program's ops are looked at now."""
        return self.depth.is_full and not (self.halted or self.probing or self.mode.capturing)

    def computes_values(self) -> bool:
        """Whether there is anything to look at: no tracer and no capture is active."""
        return not self.mode.capturing and computes_values()

    def note_unpacked(self, tensor: Any) -> None:
        self.mode.note_unpacked(tensor)

    def note_compiled(self) -> None:
        """The program compiles something."""
        self.depth.note_compiled(self.context.step)

    @property
    def probing(self) -> bool:  # an experiment of ours
        return self.functions is not None and self.functions.busy

    def calls_function(self, cls: Any, args: Any, kwargs: Any, apply: Any, site: Site) -> None:
        """A custom Function is about to be called."""
        if self.functions is not None:
            self.functions.before(cls, args, kwargs, apply, site)

    # Steps

    def run_backward(self, engine: Any, one: BackwardPass) -> Any:
        """Run autograd's engine; a pass that accumulates into leaves is a step."""
        if self.halted or self.probing or self.mode.capturing:
            return engine(one)
        is_step = self.nested == 0 and (
            one.accumulates or (bool(one.handed) and not one.create_graph)
        )
        self.mode.window.close()
        site: Site = ()
        if is_step:
            self._begin_step(one.loss)
            site = user_site(one.frame)
        self.nested += 1
        try:
            result = engine(one)
        finally:
            self.nested -= 1
            if self.nested == 0:
                self.mode.leave(one.roots)
                self.overwrites.forget()
        if is_step:
            with unobserved():
                self._end_backward(one, site, result)
        if self.nested == 0:
            self.mode.forget_history()
        return result

    def _begin_step(self, loss: float | None) -> None:
        self.last.begin_backward()
        if self.at_limit:
            self.halt(self._reason)
        if self.depth.is_full:
            with unobserved():
                self.watching.begin_backward(self.limit.updates, loss)

    def step_is_measured(self, updates_by_hand: bool) -> None:
        """A backward is over, and all that is asked of it is known."""
        if self.at_limit and self.last.is_over_after_backward(updates_by_hand):
            self.halt(self._reason)

    def update_is_measured(self, work: Work) -> None:
        """An optimizer has worked, and all that is asked of it is known."""
        if work.over and self.last.is_over_after(work.optimizer):
            self.halt(self._reason)

    def _end_backward(self, one: BackwardPass, site: Site, result: Any) -> None:
        loss = one.loss
        self.steps.add(loss, self.mode.ops, site, self.depth.is_full)
        asked = () if one.accumulates else one.handed
        handed_out = result if asked else None
        self.watching.look_at_gradients(one, handed_out, self.limit.updates)
        suspects = one.roots if loss is None or loss - loss != 0.0 else []
        self.symptoms.after_backward(one, suspects, asked, result, last=self.at_limit)
        self.hidden.after_backward(one)
        if self.margins is not None:
            self.shielded("backward", self.margins.after_backward, one)
        self.on_step(len(self.steps), self.mode.ops)
        self.context.step += 1
        self._turn()
        self.watching.end_backward(self.limit.updates)

    @property
    def at_limit(self) -> bool:
        """Whether the step that just ended is the last that will run, as far as is known."""
        return self._was_wrong or self.limit.is_reached(len(self.steps))

    @property
    def _was_wrong(self) -> bool:
        """Whether a custom Function was, before the next step."""
        checks = None if self.keep_going else self.functions
        return checks is not None and checks.wrong_before(len(self.steps))

    @property
    def _reason(self) -> Ending:
        return FIRST_ERROR if self._was_wrong else self.limit.ending

    def _turn(self) -> None:
        """Between steps: keep only what a later step can still lead back to."""
        self.context.journal.turn_step()
        self.context.bad_in_step = False
        self.context.names.forget_memory()
        self.context.received.forget_dead()
        if self.context.journal.events:
            self.context.provenance.forget_dead()
            alive = [stain.event for stain in self.context.provenance]
            self.context.journal.keep_only([*alive, *self.symptoms.held(), *self.reads.held()])

    def optimizer_made(self, optimizer: Any, frame: Any) -> None:
        self.limit.note_optimizer()

    def optimizer_begins(self, work: Work) -> None:
        if self.halted or self.probing or (self.depth.is_full and not is_on(self.mode)):
            return
        self.mode.window.close()
        self.context.in_optimizer = True
        if work.updates and self.depth.is_full:
            with unobserved():
                self.symptoms.before_optimizer(work.optimizer)
                if len(self.settings) < _SETTINGS_KEPT:
                    self.settings += bad_settings(work.optimizer, self.context.step)

    def optimizer_ends(self, work: Work) -> None:
        if work.over:
            self.limit.note_update(len(self.steps))
        if not self.context.in_optimizer:
            return
        self.mode.window.close()
        self.context.in_optimizer = False
        if self.context.bad_in_step:
            with unobserved():
                self.symptoms.after_optimizer(work.optimizer)
        self.watching.end_update(work, self.limit.updates)

    def capture_begins(self) -> None:
        self.mode.window.close()
        self.mode.capturing = True

    def capture_ends(self) -> None:
        self.mode.capturing = False
        if _CAPTURED not in self.notes:
            self.notes.append(_CAPTURED)

    # The end

    def _confirmed(self) -> None:
        """A symptom is one."""
        self.watching.note_confirmed()
        if not self.keep_going:
            self.halt(FIRST_ERROR)

    def halt(self, ending: Ending) -> None:
        """Enough was seen: hand over what there is, and end the program."""
        self.halted = True
        self._ending = ending
        self.on_stop(ending)
        self.depth.look_in_full(self.context.step)  # whatever swallows it, the next op raises again
        self.halt_again()

    def halt_again(self) -> None:
        raise StopTrace(self._ending)

    def trace(self, target: str, ending: Ending) -> Trace:
        """The facts so far, as if the program had ended like this. Changes nothing, so that it may
        be asked for at any time."""
        over = ending.kind != "stopped"
        symptoms = self.symptoms.settled(ending) if over else self.symptoms.confirmed
        ends = [symptom.event for symptom in symptoms if symptom.event is not None]
        journal = self.context.journal
        wanted = {raw.fact.id for raw in journal.ancestors(*ends)}
        for kill in [raw for raw in journal.events.values() if raw.fact.kind is Kind.KILL]:
            way = {raw.fact.id for raw in journal.ancestors(kill.fact.id)}
            if wanted & way:
                wanted |= way
        events = tuple(
            journal.freeze(raw) for raw in journal.events.values() if raw.fact.id in wanted
        )
        wrong = self.functions.symptoms() if self.functions else ()
        by_reading = (self.functions, self.margins, self.overwrites, self.examiner, journal)
        return Trace(
            target=target,
            events=events,
            symptoms=(*wrong, *symptoms),
            steps=self.steps.facts(),
            updates=self.limit.updates,
            ending=ending,
            environment=environment(self._device(events)),
            ops=self.mode.ops,
            notes=tuple(self.notes),
            gradients=self.symptoms.gradients,
            functions=tuple(self.functions.found) if self.functions else (),
            not_checked=tuple(
                left for by in by_reading if by is not None for left in by.not_checked
            ),
            overwrites=tuple(self.overwrites.found),
            nan_reads=self.reads.facts(),
            hidden=self.hidden.events(wanted),
            approaches=self.margins.approaches() if self.margins is not None else (),
            headroom=self.margins.headroom() if self.margins is not None else (),
            settings=tuple(self.settings),
            elsewhere=tuple(self.elsewhere),
            unexamined=self.watching.unexamined(ending),
            compiled=self.depth.compiled.fact(),
            rounded_otherwise=tuple(self.context.rounded_otherwise),
        )

    def _device(self, events: Any) -> str:
        devices = {e.output.device for e in events if e.output is not None and e.output.device}
        return sorted(devices)[-1] if devices else "cpu"
