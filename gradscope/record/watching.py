"""What is asked of a step that is only watched: whether what it trains with is finite, and whether
its gradient is absurd beside those before it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from gradscope.facts import AnyRefusal, Ending, Kind, Unexamined
from gradscope.record import graph
from gradscope.record.context import RunContext
from gradscope.record.depth import Depth
from gradscope.record.events.symptoms import Symptoms
from gradscope.record.finite import all_finite
from gradscope.record.held import any_alive, has_peers
from gradscope.record.optimizers import Work, parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.schedule import between_looks
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.tracing import unobserved

_HARMLESS = 3  # steps with something bad in them that led to nothing
_EVALUATIONS = 2  # that are looked at in full
_RUNS = 2  # of a model, in each
_LONGEST = 8  # passes of one update in full: of many, as LBFGS asks for, the later ones are alike


class Watching:
    """Asks it, chooses the `depth` of the coming step, and keeps what it then did not see.

    Called between ops, unobserved.
    """

    def __init__(self, context: RunContext, symptoms: Symptoms, depth: Depth, sizes: Sizes) -> None:
        self.context = context
        self.symptoms = symptoms
        self.depth = depth
        self.sizes = sizes
        self.leaves = sizes.leaves.alive  # that the program is known to have
        self.alone = False  # in this process
        # By optimizer: what the steps below it have left in the parameters was finite.
        self._clean: dict[object, int] = {}
        self._unexamined: Unexamined | None = None
        self._had_optimizer: bool | None = None
        self._bad_in_a_row = 0  # steps in full
        self._updated = 0  # the step that began with the last update
        self._updated_within = False  # a hook of the program's has updated in this backward pass
        self.reached: list[torch.Tensor] = []  # leaves of the last graph
        self.stop_coasting: Callable[[], None] = lambda: None
        self._evaluations = self._runs = 0  # that were looked at; of a model in the last of these

    # Between two steps

    def is_clean(self) -> bool:
        """Whether nothing bad is left of the steps so far, gradients and buffers included: what a
        later step is then found to have, came after them."""
        if self.symptoms.confirmed or self.symptoms.are_waiting:
            return False
        left = [one for leaf in self.leaves() for one in (leaf, leaf.grad)]
        if not all_finite([*left, *self._buffers()]):
            return False
        self._clean = dict.fromkeys(self._clean or (None,), self.context.step)
        return True

    def look_in_full_from(self, step: int | None) -> None:
        self.depth.full_from = step
        if step is not None and step <= self.context.step:
            self.depth.look_in_full(self.context.step)

    def begin_backward(self, one: BackwardPass) -> None:
        """What a program does between an update and the next backward, as evaluating itself, is
        seen with the step before; where the loss it then has is bad, so is the rest of that step.
        Without an optimizer an update by hand may follow a backward."""
        self.context.names.on_run = lambda: None
        if not self.depth.is_full:
            return
        if one.loss is not None and one.loss - one.loss != 0.0:
            return
        # What was bad in several steps, and did nothing to the loss, will do so again.
        self._bad_in_a_row = self._bad_in_a_row + 1 if self.context.bad_in_step else 0
        if 0 < self._bad_in_a_row <= _HARMLESS:
            return
        is_one_of_many = self.context.step - self._updated >= _LONGEST
        updates = self.context.updates
        adds_up = updates is not None or self._has_optimizer()
        if is_one_of_many and adds_up and self.depth.full_from is None:
            self._choose(None, may_watch=True)
        elif updates is not None or not adds_up:
            self._choose(updates, may_watch=True)

    def begin_evaluation(self) -> None:
        """A model was set to eval mode between two steps: how it then runs no step shows. So it is
        looked at in full, at the first evaluations, and the first runs in each."""
        context = self.context
        idle = self.depth.is_full or context.is_blind or not context.is_between
        if idle or self._evaluations >= _EVALUATIONS or not self.depth.may_look:
            return
        self._evaluations, self._runs = self._evaluations + 1, 0
        with unobserved():
            self.stop_coasting()
            self._look_at_what_is_left()
            self.depth.look_in_full(context.step)
        context.names.on_run = self._note_run

    def _note_run(self) -> None:
        self._runs += 1
        if self._runs > _RUNS:
            self.context.names.on_run = lambda: None
            self.depth.watch()

    def _has_optimizer(self) -> bool:
        """One that was made before anybody looked, and has not stepped yet."""
        if self._had_optimizer is None:
            self._had_optimizer = any_alive(torch.optim.Optimizer)
        return self._had_optimizer

    def end_backward(self) -> None:
        if self.context.updates is None:
            self._check(None, self.leaves)
        if self.context.updates is None or self._updated_within:
            self._updated_within = False
            self._choose(self.context.updates)

    def end_update(self, work: Work) -> None:
        if work.over:
            optimizer = work.optimizer
            self._clean.pop(None, None)  # of the passes before the first update
            self._check(id(optimizer), lambda: parameters_of(optimizer))
            self._updated = self.context.step
            # Modes that come or go in the midst of a pass are put back by the engine.
            self._updated_within = not self.context.is_between
            if not self._updated_within:
                self._choose(self.context.updates)

    def _choose(self, updates: int | None, *, may_watch: bool = False) -> None:
        step = self.context.step
        if self.depth.is_due(step, updates, self.sizes) or self.symptoms.are_waiting:
            if not self.depth.is_full:
                self._look_at_what_is_left()
            self.depth.look_in_full(step)
        elif may_watch:
            self.depth.watch()

    # In a step

    def look_at_gradients(self, one: BackwardPass, handed_out: Any) -> None:
        """Of a backward pass: what it has handed out, else what the leaves have. What optimizers
        take is looked at when they do."""
        self.sizes.surges.sample(self.context.step)
        if self.depth.is_full or (self.context.updates is not None and not handed_out):
            return
        grads = handed_out
        if not handed_out:
            self.context.seen.hold(one.roots, list(one.above))
            self.reached = graph.leaves(one.above)
            grads = [leaf.grad for leaf in self.reached]
        self.context.bad_in_step |= not all_finite(grads)

    def _check(self, key: object, held: Callable[[], Iterable[torch.Tensor]]) -> None:
        """Now and then those of one optimizer (None: there is none), since what is NaN stays so;
        with them the buffers, which no optimizer holds and a bad value may come from. And at each
        step in full that steps may follow which are only watched."""
        step = max(self.context.step - 1, 0)
        if self.depth.is_full:
            if self.depth.full_from is not None and step >= self.depth.full_from:
                return
        elif step < self._clean.get(key, 0) + between_looks(step) - 1:
            return
        found = list(held())
        if not all_finite(found):
            self._note_bad(found)
        elif all_finite(self._buffers()):
            self._clean[key] = step + 1

    def _look_at_what_is_left(self) -> None:
        """Of steps that were only watched, where one in full follows: what is bad in all that it
        reads would look as if it had come from outside."""
        self._note_bad(self.leaves())

    def _note_bad(self, held: list[torch.Tensor]) -> None:
        if not (self.depth.is_full or all_finite(held)):
            self.symptoms.note_bad_parameters(held)
            self.symptoms.on_confirmed()

    def _buffers(self) -> Iterable[torch.Tensor]:
        modules = self.context.names.running.values()
        return (buffer for module in modules for buffer in module.buffers())

    def finish(self) -> None:
        """The program is over: its last steps may have left something bad."""
        self.sizes.surges.settle()
        if self._unexamined is None and not self.depth.is_full:
            found = list(self.leaves())
            if not all_finite(found):
                self.symptoms.note_bad_parameters(found)
            elif self.alone and not (self.context.is_torn and has_peers()):
                self.symptoms.note_left_gradients()
            if self.symptoms.confirmed:
                self.note_confirmed()

    # What was not seen

    def note_confirmed(self) -> None:
        """There are symptoms. From now on, if the program goes on, every step is worth a look."""
        if self._unexamined is None and not self._are_examined():
            first = min(self.symptoms.confirmed, key=lambda symptom: symptom.step)
            self._unexamined = Unexamined(first.step, self._since, first.subject)
            self.depth.full_from = self.context.step

    @property
    def _since(self) -> int:
        return min(self._clean.values(), default=0)

    def _are_examined(self) -> bool:
        """Whether what led to the symptoms was seen: of what came in from outside of the step, that
        it did so from the program's start on."""
        if not self.depth.is_full:
            return False
        if not self.depth.full_since or self.depth.full_from is not None:
            return True
        events = [symptom.event for symptom in self.symptoms.confirmed]
        ways = self.context.journal.ancestors(*(event for event in events if event is not None))
        return None not in events and all(raw.fact.kind is not Kind.SOURCE for raw in ways)

    def unexamined(self, ending: Ending, refusal: AnyRefusal | None) -> Unexamined | None:
        """Of a program that ended like this."""
        is_seen = self.depth.is_full
        is_older = refusal is not None and not refusal.is_seen  # what it came of
        if is_older and self.depth.full_from is None:
            is_seen &= not self.depth.full_since
        if self._unexamined is None and ending.gave_up and not is_seen:
            step, since = self.context.step, self._since
            if is_older or ending.device_assert:  # told later than it was, perhaps in the next step
                since = min(since, max(step - 1, 0))
            return Unexamined(step, since, None)
        return self._unexamined
