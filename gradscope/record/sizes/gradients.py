"""Watches how large gradients are, step by step, without looking at every op.

After each backward one fused pass takes the norms of the gradients. At a few steps (the first
ones, then ever more rarely, and where the graph has grown) the graph itself is inspected: which
leaves each value depends on, how large the activations are, and the gradient at every node.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch

from gradscope.facts import Depth, Magnitudes, NotChecked, Summed
from gradscope.record.context import RunContext, shielded
from gradscope.record.dispatch import Dispatch
from gradscope.record.finite import plain
from gradscope.record.names import is_flat
from gradscope.record.optimizers import Work, grads_of
from gradscope.record.passes import BackwardPass, Engine, Graded, Measure, Passed, has_leapt
from gradscope.record.schedule import before_chosen
from gradscope.record.sites import note_site
from gradscope.record.sizes.absences import Absences
from gradscope.record.sizes.account import SAMPLE
from gradscope.record.sizes.accounts import Usages
from gradscope.record.sizes.clearing import Freshness
from gradscope.record.sizes.clipping import Clipping
from gradscope.record.sizes.crossings import MOST_NODES, Crossings
from gradscope.record.sizes.flags import unread_flags
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.growth import Growths, depth_of
from gradscope.record.sizes.inspection import Inspected, Inspection
from gradscope.record.sizes.leaps import Leaps
from gradscope.record.sizes.leaves import Leaves, norms_of
from gradscope.record.sizes.module_use import OwnBackwards, TrainingModes
from gradscope.record.sizes.oversized import FirstSizes
from gradscope.record.sizes.reduction import summed
from gradscope.record.sizes.reloads import Reloads
from gradscope.record.sizes.replacements import Replacements
from gradscope.record.sizes.surges import Surges
from gradscope.record.sizes.updates import Updates, is_probe

_MEASURED_FIRST = 12  # steps
_PART_OF_A_GRAPH = NotChecked(
    "where gradients grow, shrink and end in a part of the graph",
    f"it has more than {MOST_NODES:,} nodes",
)


class Sizes:
    """One reading of a run, beside that of the ops if there is one.

    Gradients are read and never written: those that `backward` leaves with the leaves, or, in a
    program that never calls it, those that `torch.autograd.grad` hands out. `measure` is told of
    each of these passes and of each update.
    """

    def __init__(self, context: RunContext, measure: Measure | None = None) -> None:
        self._context = context
        self.measure = measure
        self.names = names = context.names
        self.leaves = Leaves(names, context.built)
        self.surges = Surges(self.leaves.watched)
        self.inspection = Inspection(context)
        self._replacements = Replacements(context, self.inspection.look_at_models)
        self._growths, self._leaps = Growths(), Leaps(self.leaves)
        self._first_sizes = FirstSizes(context)
        self._depth: Depth | None = None
        self.updates = Updates(self.leaves)
        self.absences = Absences(self.leaves, self.updates.trained)
        self.usages = Usages(self.leaves, context, measure)
        self._clipping = Clipping(context, self.usages.note_clip)
        self.usages.on_early_clip = self._clipping.note_early
        self._summed: Summed | None = None
        self.loss: float | None = None  # of the step before
        self._passes = 0  # those that count: of `backward` once there was one
        self._accumulates = False  # there was one
        self._freshness = Freshness()
        self._written = 0  # the last step after which parameters were written by hand
        self._total_after_backward: float | None = None
        self._has_leapt = False  # the loss of the last pass, which was known too late
        self._running: tuple[Crossings, Flow | None, FrameType] | None = None  # the pass that runs
        self._at_work = False  # an optimizer is
        self._stack = ExitStack()
        self._own_backwards = OwnBackwards(self._stack, names)
        self.modes = TrainingModes(context)
        self._reloads = Reloads(context, self.usages)
        self._not_checked: tuple[NotChecked, ...] = ()

    def begin(self, stack: ExitStack, thread: int, dispatch: Dispatch) -> None:
        """Until `stack` ends; by `dispatch` ops are seen."""
        stack.enter_context(self._stack)
        watchers = self._clipping, self.usages, self.modes, self._reloads, self.leaves
        for one in (*watchers, self._replacements):
            one.install(stack, thread)
        self.inspection.begin(dispatch)

    def end(self) -> None:
        self.inspection.leave_forward()

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """What a limit has left out."""
        return (*self._not_checked, *self.usages.not_checked)

    def optimizer_made(self, optimizer: Any, frame: FrameType) -> None:
        self.updates.note_made(optimizer, frame)
        self.usages.optimizer_made(optimizer, frame)
        self._replacements.optimizer_made(optimizer, frame)
        self.inspection.look_at_models()

    # A backward pass

    def begin_backward(self, one: BackwardPass) -> None:
        """Of the program, a step or not."""
        self._clipping.begin_backward(one)
        if (not one.is_step or one.functional) and self.inspection.flow is not None:
            self.inspection.flow.note_differentiated(one.outputs, one.handed)

    def end_backward(self, one: BackwardPass, result: Any) -> None:
        """Of the program, a step or not, that gave `result`."""
        if self.inspection.flow is not None and not one.accumulates:
            self.inspection.flow.note_handed_out(one, result or ())

    def run_backward(self, engine: Engine, one: BackwardPass) -> Any:
        """Of a step."""
        if self._at_work:
            self.updates.note_backward_within()
        if one.accumulates and not self._accumulates:
            self._begin_accumulating()
        if one.accumulates or (one.trains and not self._accumulates):
            self.modes.note_pass()
            return self._watched(engine, one)
        # Beside `backward`, what is handed out is not what the program trains with.
        self.loss = None
        return engine(one)

    @property
    def calm_passes(self) -> float:
        """The coming ones that nobody needs to look at, as long as they are like the last one."""
        is_wanted = self.usages.wants_look or self.inspection.flow is not None
        is_calm = self._accumulates and not (is_wanted or self._at_work or self.measure)
        is_calm &= self.loss is not None and not self.leaves.have_results
        is_calm &= self._context.step >= SAMPLE
        return before_chosen(self._passes) if is_calm else 0

    def note_coasted(self, passed: Passed) -> None:
        """So many passes and updates were not looked at."""
        self.loss = passed.loss
        self._passes += passed.passes
        self.modes.note_coasted(passed.passes)
        self.inspection.note_coasted(passed.made_until)
        if passed.passes:
            self._clipping.forget()
        if passed.updates:
            self._freshness.note_update()
            self.updates.note_coasted(passed.updates)
            self.usages.note_coasted(passed)

    def _begin_accumulating(self) -> None:
        """What was handed out before the first `backward` was not training."""
        self._accumulates = True
        if self._passes:
            self._passes = 0
            self.inspection.look_anew()
            self.leaves.forget()
            if self.measure is not None:
                self.measure.forget()

    def _watched(self, engine: Any, one: BackwardPass) -> Any:
        flow = self.inspection.leave_forward()
        crossings: Crossings | None = None
        measured = False
        if self.leaves.have_results:
            with shielded(self._context):
                self._note_replaced(one.asked)
        is_grown = self.inspection.graph_has_grown()
        if flow is not None or is_grown or self._is_measured(one):
            with shielded(self._context):
                if flow is not None or is_grown:
                    crossings = self._inspect(one, flow)
                trained, by_hand = self.updates.trained, self.updates.are_by_hand
                self._freshness.begin(self.leaves.alive(), trained, by_hand=by_hand)
                measured = True
        if not measured:
            self._freshness.begin_unmeasured()
        self._running = (crossings, flow, one.frame) if crossings is not None else None
        try:
            result, self._running = engine(one), None
        except BaseException:
            self._note_running()
            self.inspection.note_refused(one.above)
            raise
        finally:
            if crossings is not None:
                crossings.close()
        if measured:
            with shielded(self._context):
                graded = (
                    self._accumulated(crossings, one.frame)
                    if one.accumulates
                    else one.handed_out(result)
                )
                if not one.accumulates:
                    self._freshness.note_handed_out()
                self._after_backward(one, graded, flow, crossings)
        self._has_leapt = not measured and has_leapt(one.loss, self.loss)
        self.loss = one.loss
        self._freshness.end()
        self.leaves.forget_results()
        self._passes += 1
        self.inspection.watch_forward(self._passes, wanted=self.usages.wants_look)
        return result

    def _inspect(self, one: BackwardPass, flow: Flow | None) -> Crossings:
        roots = one.differentiable
        if flow is not None and self._summed is None:
            self._summed = summed(roots, self._context)
        if flow is not None and not self._passes:
            self._first_sizes.before_backward(one)
        crossings = self.inspection.hook_backward(self._context.step, roots, flow, one.frame)
        if not crossings.is_whole:
            self._not_checked = (_PART_OF_A_GRAPH,)
        return crossings

    def _note_running(self) -> None:
        """Backward is stopped at a bad gradient: how it grew until there is still wanted."""
        if self._running is not None:
            with shielded(self._context):
                self._note_graph(*self._running)
            self._running = None

    def _is_measured(self, one: BackwardPass) -> bool:
        """Whether to take the norms of this step: of each for a command that asks for them, else
        of the first ones and where the loss has leapt, or just did where a GPU has not told yet."""
        if self.measure is not None or self._context.step < _MEASURED_FIRST:
            return True
        return has_leapt(one.loss, self.loss) if one.knows_loss else self._has_leapt

    def _accumulated(self, crossings: Crossings | None, frame: Any) -> Graded:
        """The leaves whose gradient this pass has made or added to."""
        variables = crossings.variables if crossings is not None else ()
        self._note_replaced(variables)
        for leaf in (*variables, *(sharded := self.names.sharded(frame))):
            is_gathered = bool(sharded) and leaf.grad is None  # what it was given has gone on
            if not is_gathered and not is_flat(leaf) and plain(leaf) is not None:  # nor a meta one
                self.leaves.meet(leaf, frame)
        return self._freshness.added_to(self.leaves.alive(), frame)

    def _after_backward(
        self, one: BackwardPass, graded: Graded, flow: Flow | None, crossings: Crossings | None
    ) -> None:
        for leaf in one.asked:
            self.leaves.meet(leaf, one.frame)
        sizes = norms_of([grad for _, grad in graded])
        norms = {id(leaf): norm for (leaf, _), norm in zip(graded, sizes, strict=True)}
        self._freshness.note_norms(norms)
        self.usages.note_gradients()
        self.leaves.note(self._context.step, norms, weigh=crossings is not None)
        if one.accumulates:
            self._total_after_backward = self._total() if crossings is not None else None
            if flow is not None:
                self.leaves.note_handed_out(lambda leaf: flow.handed_out & flow.bit_of(leaf))
                roots = one.differentiable
                self.absences.look(self._context.step, flow, roots, crossings, norms)
        if crossings is not None:
            self._note_graph(crossings, flow, one.frame)
        if self.measure is not None:
            graded = self.leaves.in_module_order(graded)
            self.measure.after_backward(
                self._context.step, graded, self.leaves.fact_of, crossings is not None
            )

    def _note_graph(self, crossings: Crossings, flow: Flow | None, frame: Any) -> None:
        """How large values and gradients are along an inspected graph."""
        activations = flow.activations.read() if flow is not None else {}
        seen = Inspected(self._context.step, crossings, activations, frame)
        self._growths.note(seen)
        if flow is not None:
            self.usages.note_graph(crossings.found)
            self._leaps.note(seen)
            self._first_sizes.after_backward(seen, flow.targets)
            self._own_backwards.look(self._context.journal.calls.values())
            self._depth = depth_of(seen, self._context)

    # An optimizer step

    def optimizer_begins(self, work: Work) -> None:
        self.inspection.pause(True)
        self._at_work = True
        if work.updates and self._context.is_between and self._context.step:
            if self._freshness.is_measured or self._total_after_backward:
                with shielded(self._context):
                    self._before_update(work)
            else:  # no arithmetic
                self._before_update(work)
        self.usages.optimizer_begins(work)

    def optimizer_ends(self, work: Work) -> None:
        self.inspection.pause(False)
        self._at_work = False
        if work.updates:
            self._after_update(work)
        self.usages.optimizer_ends(work)

    def _after_update(self, work: Work) -> None:
        self._clipping.end_update(work)
        self._freshness.note_update()
        if self._context.is_between:
            if self._context.step <= _MEASURED_FIRST:
                self._freshness.note_left(work.optimizer)
            if self.measure is not None:
                with shielded(self._context):
                    self.measure.after_update(self.leaves.alive(), self.leaves.name_of)

    def _before_update(self, work: Work) -> None:
        clipped = None
        if self._total_after_backward:
            clipped = self._total() / self._total_after_backward
            self._total_after_backward = None
        self.absences.settle(self._context.step - 1, work.optimizer)
        self.updates.note(self._context.step - 1, work, self._freshness, clipped)

    def note_write(self, tensor: Any, frame: Any) -> None:
        """A tensor is about to be written, by no optimizer and outside of backward: the first
        leaf after each backward is an update by hand, the others are of the same one."""
        is_first = self._written != self._context.step
        if not self._context.is_between or not (is_first or self._context.step <= _MEASURED_FIRST):
            return
        leaf = self.leaves.stored_with(tensor)
        if leaf is not None and is_probe(frame):
            return
        if leaf is not None and not is_first:
            with shielded(self._context):
                self.updates.train_by_hand(leaf, frame)
        elif leaf is not None:
            self._written = self._context.step
            self._freshness.note_update()
            with shielded(self._context):
                self.updates.note_by_hand(self._context.step - 1, leaf, self._freshness, frame)

    def note_result(self, operands: Sequence[Any], result: Any, frame: Any) -> None:
        """A sum or a difference was computed outside of backward: of a leaf and its gradient it
        is an update, once the result takes the leaf's place."""
        if not self._context.is_between or not self._context.step:
            return
        last = self._context.step - 1
        for operand in operands:
            self.leaves.note_result(last, operand, result, lambda: note_site(frame)[0])

    def _note_replaced(self, leaves: Sequence[torch.Tensor]) -> None:
        """Of the known leaves and of these. Where an optimizer holds the old one, the new one is
        no update of it: the optimizer goes on with the old one."""
        for leaf, found in self.leaves.replacements(leaves):
            if self.leaves.is_lost(found.name, leaf, self.updates.held):
                continue
            self._freshness.note_update()
            self.updates.note_replaced(self._context.step - 1, leaf, found)

    def _total(self) -> float:
        return math.hypot(*norms_of(grads_of(self.leaves.alive())))

    def facts(self) -> Magnitudes:
        """What was measured so far."""
        self._note_running()
        leaves = self.leaves.facts(self._context.step)
        given = self.updates.given | self.inspection.reached
        return Magnitudes(
            leaves=leaves,
            growths=self._growths.strongest(),
            leaps=tuple(self._leaps.found),
            absences=self.absences.facts(leaves, given, self._replacements),
            constants=self.absences.constants(),
            died=self.absences.died(leaves),
            updates=self.updates.facts(),
            usages=self.usages.facts(),
            measured=self.measure.facts() if self.measure is not None else None,
            clips=self._clipping.facts(),
            scaled_updates=self._clipping.scaling.facts(),
            summed=self._summed,
            swelling=self._growths.swelling,
            oversized=self._first_sizes.found,
            own_backwards=self._own_backwards.facts(),
            modes=self.modes.facts(self.updates.trained.keys()),
            reloads=self._reloads.facts(),
            undoings=self._reloads.undoings(),
            unread_flags=unread_flags(self.names, self.updates.held, self.usages.files),
            depth=self._depth,
        )
