"""What is put around a program to see it: its ops and its gradients' sizes, or the sizes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

from gradscope.facts import AnyRefusal, Ending, Step, Trace
from gradscope.record.data import ArrayWarnings, Loaders
from gradscope.record.environment import environment
from gradscope.record.instrument import tell
from gradscope.record.limit import LastUpdate, Limit, StopTrace
from gradscope.record.passes import Measure
from gradscope.record.probes.function_checks import FunctionChecks, checked
from gradscope.record.recorder import Recorder
from gradscope.record.refusals import Notes, refusal_of
from gradscope.record.schema import OpInfo
from gradscope.record.sizes.magnitudes import MagnitudeWatch
from gradscope.record.tracing import unobserved


class Observation(Protocol):
    """A context manager around the program, in the thread that runs it."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *failure: object) -> None: ...

    @property
    def steps(self) -> int:
        """The backward passes so far."""

    @property
    def is_at_limit(self) -> bool:
        """Whether no further one will run."""

    def know_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Told of the inputs of a function, which no frame of the user's holds afterwards."""

    def never_stop(self) -> None:
        """Let the program run to its end, whatever is found."""

    def trace(self, target: str, ending: Ending) -> Trace:
        """The facts so far, as if the program had ended like this. Changes nothing."""


class FullObservation:
    """Every op, and the sizes of the gradients. `between_steps` is called after each step but the
    last; the other parameters are those of `Recorder`."""

    def __init__(
        self,
        *,
        steps: int | None = None,
        passes: int | None = None,
        keep_going: bool = True,
        on_step: Callable[[int, int], None] = lambda steps, ops: None,
        on_stop: Callable[[Ending], None] = lambda ending: None,
        check_functions: bool = True,
        hazards: bool = False,
        ends_with_update: bool = False,
        full_from: int | None = 0,
        between_steps: Callable[[FullObservation], None] = lambda observation: None,
        measure: Measure | None = None,
    ) -> None:
        self.recorder = Recorder(
            steps=steps,
            passes=passes,
            keep_going=keep_going,
            on_step=on_step,
            on_stop=on_stop,
            check_functions=check_functions,
            hazards=hazards,
            ends_with_update=ends_with_update,
            full_from=full_from,
        )
        self.sizes = MagnitudeWatch(
            self.recorder.context,
            measure,
            on_step=lambda step: self._step_is_over(),
            on_update=self.recorder.update_is_measured,
            names=self.recorder.context.names,
            below=lambda: self.recorder.depth.below,
        )
        recorder = self.recorder
        self._notes = Notes(recorder.context, recorder.sees_ops, recorder.shielded)
        self._refusal: AnyRefusal | None = None
        self.sizes.inspection.asked = lambda: self.recorder.depth.full_from
        self._between_steps = between_steps
        self.recorder.watching.leaves = self.sizes.leaves.alive
        self.recorder.watching.updates_by_hand = lambda: self.sizes.updates_by_hand
        self.arrays = ArrayWarnings()
        self.recorder.on_write = self._note_write
        self.recorder.on_result = self.sizes.note_result
        self.recorder.on_operands = self.sizes.usages.note_operands
        if self.recorder.functions is not None:
            self.recorder.functions.aside = self.sizes.aside
        self._stack = ExitStack()

    def __enter__(self) -> FullObservation:
        self._stack.enter_context(self.arrays)
        Loaders(self.recorder.context, self.recorder.sees_ops).install(self._stack)
        readings = self.recorder, self.sizes, self.sizes.usages
        for reading in readings[:2]:
            self._stack.push(reading)
            reading.begin()
        tell(self._stack, self._notes, *readings, elsewhere=self.recorder.elsewhere)
        return self

    def __exit__(self, *failure: object) -> None:
        error = failure[1] if len(failure) > 1 else None
        if isinstance(error, BaseException) and not isinstance(error, StopTrace):
            with unobserved():
                self.recorder.shielded("the exception", self._ask, error)
        self._stack.close()

    def _ask(self, error: BaseException) -> None:
        context = self.recorder.context
        flow = self.sizes.inspection.refused or self.sizes.inspection.flow
        self._refusal = refusal_of(error, self._notes, context, flow)

    def _note_write(self, info: OpInfo, tensor: Any, frame: Any) -> None:
        self.sizes.note_write(tensor, frame)
        self.recorder.shielded(info.name, self._notes.note_write, info, tensor, frame)

    def _step_is_over(self) -> None:
        self.recorder.step_is_measured(self.sizes.updates_by_hand)
        self._between_steps(self)

    def is_clean(self) -> bool:
        """Between two steps: whether the next one can be repeated from here, and would begin with
        finite parameters."""
        with unobserved():
            return not self.recorder.at_limit and self.recorder.watching.is_clean()

    def repeat(
        self,
        *,
        steps: int | None,
        passes: int | None,
        keep_going: bool,
        full_from: int | None,
        ends_with_update: bool,
    ) -> None:
        """Between two steps: from here on as an observation that was made with these."""
        recorder = self.recorder
        recorder.limit.move(steps, passes)
        recorder.keep_going = keep_going
        recorder.last = LastUpdate(ends_with_update)
        recorder.margins = None
        if recorder.functions is not None:
            recorder.functions.forget()
        with unobserved():
            recorder.watching.look_in_full_from(full_from)
            self.sizes.inspection.watch_forward(self.steps)

    def follow(self, other: FullObservation, steps: int) -> None:
        """Begin after so many backward passes, which another one has seen."""
        self.recorder.steps = other.recorder.steps.first(steps)
        self.recorder.context.step = self.sizes.step = steps
        self.sizes.losses = other.sizes.losses[:steps]

    @property
    def steps(self) -> int:
        return len(self.recorder.steps)

    @property
    def is_at_limit(self) -> bool:
        return self.recorder.limit.is_reached(self.steps)

    def know_inputs(self, inputs: Mapping[str, Any]) -> None:
        self.sizes.names.given = inputs

    def never_stop(self) -> None:
        self.recorder.limit.move(None, None)
        self.recorder.keep_going = True

    def trace(self, target: str, ending: Ending) -> Trace:
        seen = self.recorder.trace(target, ending)
        return replace(
            seen,
            notes=(*seen.notes, *self.sizes.notes),
            not_checked=(*seen.not_checked, *self.sizes.not_checked),
            magnitudes=self.sizes.facts(),
            surged=self.recorder.watching.surges.first,
            array_warnings=tuple(self.arrays.heard),
            refusal=self._refusal,
            raised=self.recorder.mode.raised.fact(ending),
        )


class SizesAlone:
    """The sizes of the gradients and the custom Functions: ops run as they always do. `measure` is
    told of each backward; the other parameters are those of `FullObservation`."""

    def __init__(
        self,
        measure: Measure,
        *,
        steps: int | None = None,
        passes: int | None = None,
        on_step: Callable[[int, int], None] = lambda steps, ops: None,
        on_stop: Callable[[Ending], None] = lambda ending: None,
        check_functions: bool = True,
    ) -> None:
        self.sizes = MagnitudeWatch(
            measure=measure,
            limit=Limit(steps, passes),
            on_step=lambda step: on_step(step, 0),
            on_stop=on_stop,
        )
        self.functions: FunctionChecks | None = None
        if check_functions:
            self.functions = FunctionChecks(lambda: self.sizes.step, self.sizes.aside)
        self._stack = ExitStack()

    def __enter__(self) -> SizesAlone:
        self._stack.enter_context(self.sizes)
        if self.functions is not None:
            self._stack.enter_context(checked(self.functions))
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    @property
    def steps(self) -> int:
        return self.sizes.step

    @property
    def is_at_limit(self) -> bool:
        return self.sizes.limit.is_reached(self.steps)

    def know_inputs(self, inputs: Mapping[str, Any]) -> None:
        self.sizes.names.given = inputs

    def never_stop(self) -> None:
        self.sizes.limit.move(None, None)

    def trace(self, target: str, ending: Ending) -> Trace:
        return Trace(
            target,
            symptoms=self.functions.symptoms() if self.functions is not None else (),
            steps=steps_of(self.sizes.losses),
            updates=self.sizes.limit.updates,
            ending=ending,
            environment=environment(),
            notes=tuple(self.sizes.notes),
            magnitudes=self.sizes.facts(),
            functions=tuple(self.functions.found) if self.functions is not None else (),
            not_checked=(
                *(self.functions.not_checked if self.functions is not None else ()),
                *self.sizes.not_checked,
            ),
        )


def steps_of(losses: Sequence[float | None]) -> tuple[Step, ...]:
    """The steps of a run that no recorder counted."""
    return tuple(Step(index, loss, 0.0, 0, in_full=False) for index, loss in enumerate(losses))
