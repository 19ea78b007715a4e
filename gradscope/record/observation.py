"""What is put around a program to see it: its ops and its gradients' sizes, or the sizes alone."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from gradscope.facts import AnyRefusal, Ending, Environment, Magnitudes, Trace
from gradscope.record.coasting import Coasting
from gradscope.record.context import RunContext
from gradscope.record.data import show_warnings_as_ever
from gradscope.record.dispatch import Dispatch
from gradscope.record.every_op import EveryOp
from gradscope.record.handlers import let_handlers_wait
from gradscope.record.limit import FIRST_ERROR, LastUpdate, Limit, Steps, StopTrace
from gradscope.record.optimizers import Work, watch_optimizers
from gradscope.record.passes import BackwardPass, Engine, Measure
from gradscope.record.patches import follow_functions, follow_modules
from gradscope.record.probes.function_checks import FunctionChecks
from gradscope.record.refusals import refusal_of, refused_by_scaler
from gradscope.record.sites import forget_names, user_site
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.stand_ins import hide_all_from_dynamo, is_elsewhere, stand_in, without_us
from gradscope.record.tracing import computes_values, unobserved


class Observation:
    """Context manager around a program, in the thread that runs it: the custom Functions, the sizes
    of the gradients, and with `each_op` the ops, of every step or as `full_from` says (see
    `Depth`), and of the other steps whether what they train with is finite.

    Stops the program (by `StopTrace`) at the first error unless `keep_going`, and where `steps` or
    `passes` say (see `Limit`): when the next backward begins, or, `ends_with_update`, once the
    optimizers have taken the last one's gradients. `on_stop` is called once, before that, in the
    program's thread, `on_step` after backward passes, with the passes and the ops so far, and
    `between_steps` after steps other than the last; where many steps go by in a row (see
    `Coasting`), not after each, but `on_pass` is. Of a program that is `alone` in this process all
    tensors that there are at its end are its own. `measure` is told of each backward and update.
    Losses and gradients are bit-identical with and without it; the RNG streams are untouched.

    Not observed: ops of other threads, code inside compiled or exported programs that bypasses
    dispatch, and what C++ extensions do to memory on their own.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        passes: int | None = None,
        alone: bool = False,
        keep_going: bool = True,
        on_step: Callable[[int, int], None] = lambda steps, ops: None,
        on_pass: Callable[[int], None] = lambda steps: None,
        on_stop: Callable[[Ending], None] = lambda ending: None,
        check_functions: bool = True,
        hazards: bool = False,
        ends_with_update: bool = False,
        full_from: int | None = 0,
        between_steps: Callable[[Observation], None] = lambda observation: None,
        measure: Measure | None = None,
        each_op: bool = True,
    ) -> None:
        self._keep_going = keep_going
        self._on_step, self._on_stop = on_step, on_stop
        self._between_steps = between_steps
        self._last = LastUpdate(ends_with_update)
        self._ending = Ending("stopped")
        self.ran = Steps()
        self._elsewhere: dict[str, None] = {}  # other threads that ran backward, in order
        self._refusal: AnyRefusal | None = None
        self._stack = ExitStack()
        self.context = context = RunContext()
        self.limit = Limit(context, steps, passes)
        self.functions = FunctionChecks(context) if check_functions else None
        self.sizes = Sizes(context, measure)
        self.ops: EveryOp | None = None
        self.dispatch = Dispatch(context)
        self.coasting = Coasting(context, self.limit, self.sizes, self._look_at_gradients, on_pass)
        if each_op:
            self.ops = EveryOp(context, self.sizes, self._confirmed, full_from, hazards=hazards)
            self.ops.watching.alone, self.ops.watching.stop_coasting = alone, self.coasting.end
            self.dispatch = self.ops.mode
            context.halt_again = self._halt_again

    def __enter__(self) -> Observation:
        thread = threading.get_ident()
        hide_all_from_dynamo()
        let_handlers_wait(self._stack)
        follow_modules(self.context, self.dispatch, self._stack, thread)
        mode = self.ops.mode if self.ops is not None else None
        kept = mode.overwrites.note_kept if mode is not None else None
        follow_functions(self.context, self.functions, self._stack, thread, kept)
        show_warnings_as_ever(self._stack)
        if self.ops is not None:
            self.ops.begin(self._stack, thread)
        else:
            self._stack.enter_context(self.dispatch)
        self.sizes.begin(self._stack, thread, self.dispatch)
        self._stand_in_for_engine(thread)
        loaded = mode.refusable.optimizer_loaded if mode is not None else None
        around = self.optimizer_begins, self.optimizer_ends, self.optimizer_made
        watch_optimizers(self._stack, *around, self.coasting, loaded)
        return self

    def _stand_in_for_engine(self, thread: int) -> None:
        """Be asked for each backward pass of this thread, where ops compute values."""
        original: Callable[..., Any] = torch.autograd.graph._engine_run_backward
        coasting = self.coasting

        def engine(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if is_elsewhere(thread):
                self._elsewhere[threading.current_thread().name] = None
                return original(t_outputs, *args, **kwargs)
            frame = sys._getframe(1)
            with without_us:
                if coasting.may_pass:
                    result = coasting.run(original, t_outputs, args, kwargs, frame)
                    if result is not NotImplemented:
                        return result
                if not computes_values():
                    return original(t_outputs, *args, **kwargs)
                with unobserved() as ours:

                    def run(one: BackwardPass) -> Any:
                        return ours.except_for(original, one.outputs, *one.args, **one.kwargs)

                    return self.run_backward(run, BackwardPass(t_outputs, args, kwargs, frame))

        for owner in (torch.autograd, torch.autograd.graph):
            stand_in(self._stack, owner, "_engine_run_backward", engine, inner=True)

    def __exit__(self, *failure: object) -> None:
        error = failure[1] if len(failure) > 1 else None
        with unobserved() as ours:
            self.coasting.end()
            raised = isinstance(error, BaseException) and not isinstance(error, StopTrace)
            if self.ops is not None and raised:
                self.context.shielded("the exception", self._ask, self.ops, error, ours.had_grad)
            self.context.shielded("its end", self.sizes.end)
            if self.ops is not None:
                self.context.shielded("its end", self.ops.end)
        self._stack.close()
        self.context.module = None
        forget_names()

    def _ask(self, ops: EveryOp, error: BaseException, had_grad: bool) -> None:
        ops.mode.refusable.switches.had_grad = had_grad
        for optimizer in refused_by_scaler(error):
            self.sizes.updates.look(optimizer, None)
        flow = self.sizes.inspection.refused or self.sizes.inspection.flow
        self._refusal = refusal_of(error, ops.mode.refusable, self.context, flow)
        ops.mode.raised.note_ending(error)
        ops.symptoms.note_given_up(error, ops.mode.raised.bad_operands(error))

    # Backward passes and updates

    def run_backward(self, engine: Engine, one: BackwardPass) -> Any:
        """Run autograd's engine, and look before and after: of a step at all, of another pass, as
        a part of it or beside it, at the ops alone. Called unobserved, as all that looks."""
        context, ops = self.context, self.ops
        if context.halted:
            self._halt_again()
        if context.is_experiment or (ops is not None and ops.mode.capturing):
            return engine(one)
        if not context.nested:
            context.shielded("backward", self.sizes.begin_backward, one)
        is_step = one.is_step and not context.nested
        if is_step:
            one.ask_for_loss()
            self._begin_step(one)
        context.nested += 1
        context.is_torn = True
        try:
            result = (self._run_step if is_step else self._run_ops)(engine, one)
            context.is_torn = False
        finally:
            context.nested -= 1
        if is_step:
            self._end_step()
        if not context.nested:
            context.shielded("backward", self.sizes.end_backward, one, result)
            if ops is not None:
                ops.mode.forget_history()
        return result

    def _coast(self) -> None:
        """Nobody has to look at the coming steps, as far as is known."""
        context, ops, checks = self.context, self.ops, self.functions
        if ops is None or context.halted or not context.is_between or (checks and checks.found):
            return
        (passes, updates), sizes = ops.calm(), self.sizes
        self.coasting.begin(
            self.ran,
            min(passes, sizes.calm_passes, self.limit.fewest - self.steps - 1),
            min(updates, sizes.usages.calm_updates),
            ops.watching.reached if context.updates is None else None,
        )

    def _look_at_gradients(self, root: torch.Tensor, frame: FrameType) -> None:
        """Of a pass that went by, of this root."""
        assert self.ops is not None
        with unobserved():
            one = BackwardPass((root,), (), {"accumulate_grad": True}, frame)
            self.ops.end_backward(one, None, last=False)

    def _run_ops(self, engine: Engine, one: BackwardPass) -> Any:
        return engine(one) if self.ops is None else self.ops.run_backward(engine, one)

    def _run_step(self, engine: Engine, one: BackwardPass) -> Any:
        def seen(one: BackwardPass) -> Any:
            site = user_site(one.frame)
            result = self._run_ops(engine, one)
            in_full = self.ops is not None and self.ops.depth.is_full
            tried = self.context.tries
            self.ran.add(one.loss, site, self._ops_so_far, in_full=in_full, tried=tried)
            if self.ops is not None:
                self.ops.end_backward(one, result, last=self._is_last)
            return result

        usages = self.sizes.usages
        if one.accumulates:
            usages.begin_pass(one)
        result = self.sizes.run_backward(seen, one)
        if one.accumulates:
            usages.end_pass()
        return result

    def _begin_step(self, one: BackwardPass) -> None:
        self._last.begin_backward()
        if self._is_last:
            self._halt(self._reason)
        if self.ops is not None:
            self.ops.watching.begin_backward(one)

    def _end_step(self) -> None:
        self.context.end_step()
        if self.ops is not None:
            self.context.shielded("a step", self.ops.end_step)
        self._on_step(self.steps, self._ops_so_far)
        if self._is_last and self._last.is_over_after_backward(self.sizes.updates.are_by_hand):
            self._halt(self._reason)
        self._between_steps(self)
        if self.context.updates is None:
            self._coast()

    def optimizer_made(self, optimizer: Any, frame: FrameType) -> None:
        with unobserved():
            shielded = self.context.shielded
            self.coasting.end()
            self.limit.note_optimizer()
            if self.ops is not None:
                shielded("an optimizer", self.ops.mode.refusable.optimizer_made, optimizer, frame)
            shielded("an optimizer", self.sizes.optimizer_made, optimizer, frame)

    def optimizer_begins(self, work: Work) -> None:
        with unobserved():
            if self.ops is not None:
                self.ops.optimizer_begins(work)
            self.context.shielded("the optimizer", self.sizes.optimizer_begins, work)

    def optimizer_ends(self, work: Work) -> None:
        with unobserved():
            self.context.tries = work.updates and not work.over
            if work.over:
                self.limit.note_update(self.steps)
            if self.ops is not None:
                self.ops.optimizer_ends(work)
            self.context.shielded("the optimizer", self.sizes.optimizer_ends, work)
            if work.over and self._last.is_over_after(work.optimizer):
                self._halt(self._reason)
            if work.over and self.coasting.may_begin_after(work.optimizer) and not work.inner:
                self._coast()

    # Its end

    @property
    def _is_last(self) -> bool:
        """Whether the step that just ended is the last that will run, as far as is known."""
        return self._was_wrong or self.is_at_limit

    @property
    def _was_wrong(self) -> bool:
        """Whether a custom Function was, before the next step."""
        checks = None if self._keep_going else self.functions
        return checks is not None and checks.wrong_before(self.steps)

    @property
    def _reason(self) -> Ending:
        return FIRST_ERROR if self._was_wrong else self.limit.ending

    def _confirmed(self) -> None:
        """A symptom is one."""
        if not self._keep_going:
            self._halt(FIRST_ERROR)

    def _halt(self, ending: Ending) -> None:
        """Enough was seen: hand over what there is, and end the program."""
        self.context.halted = True
        self._ending = ending
        self._on_stop(ending)
        if self.ops is not None:  # whatever swallows it, the next op raises again
            self.ops.depth.look_in_full(self.context.step)
        self._halt_again()

    def _halt_again(self) -> None:
        raise StopTrace(self._ending)

    # Asked from outside

    @property
    def steps(self) -> int:
        """The backward passes so far."""
        return len(self.ran)

    @property
    def is_at_limit(self) -> bool:
        """Whether no further one will run."""
        return self.limit.is_reached(self.steps)

    def never_stop(self) -> None:
        """Let the program run to its end, whatever is found."""
        self.limit.move(None, None)
        self._keep_going = True

    def is_clean(self) -> bool:
        """Between two steps: whether the next one can be repeated from here, and would begin with
        finite parameters. Of one that sees the ops."""
        if self._is_last or self.ops is None:
            return False
        with unobserved():
            return self.ops.watching.is_clean()

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
        self.limit.move(steps, passes)
        self._keep_going = keep_going
        self._last = LastUpdate(ends_with_update)
        if self.functions is not None:
            self.functions.forget()
        if self.ops is not None:
            self.ops.mode.margins = None
            self.ops.watching.look_in_full_from(full_from)
            self.sizes.inspection.watch_forward(self.steps)

    def follow(self, other: Observation, steps: int) -> None:
        """Begin after so many backward passes, which another one has seen."""
        self.ran = other.ran.first(steps)
        self.context.step = steps

    def forget(self) -> None:
        """All is told: let go of what the program holds. Somebody may go on holding what stood in
        for a function of torch's, as Dynamo does where it was imported meanwhile."""
        for one in (self.ops, self.sizes, self.context, self):
            if one is not None:
                vars(one).clear()

    @property
    def _ops_so_far(self) -> int:
        return self.ops.mode.ops if self.ops is not None else 0

    def trace(self, target: str, ending: Ending) -> Trace:
        """The facts so far, as if the program had ended like this. Changes nothing, so that it may
        be asked for at any time."""
        self.coasting.end()
        functions = self.functions
        seen = Trace(
            target=target,
            symptoms=functions.symptoms() if functions is not None else (),
            steps=self.ran.facts(),
            updates=self.context.updates,
            ending=ending,
            environment=Environment(torch.__version__.split("+")[0], platform.python_version()),
            notes=tuple(self.context.notes),
            not_checked=functions.left_out(ending) if functions is not None else (),
            magnitudes=Magnitudes() if ending.device_assert else self.sizes.facts(),
            functions=functions.facts(ending) if functions is not None else (),
            elsewhere=tuple(self._elsewhere),
            refusal=self._refusal,
        )
        seen = seen if self.ops is None else self.ops.with_ops(seen)
        return replace(seen, not_checked=(*seen.not_checked, *self.sizes.not_checked))
