"""What is asked of a step that is only watched: whether what it trains with is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from gradscope.facts import Ending, Kind, Unexamined
from gradscope.record import graph
from gradscope.record.context import RunContext
from gradscope.record.depth import Depth
from gradscope.record.events.symptoms import Symptoms, any_alive
from gradscope.record.finite import holds_bad
from gradscope.record.optimizers import Work, parameters_of

_EVERY = 16  # steps from one look at the parameters to the next: it costs as much as at gradients
_LONGEST = 32  # steps in full without an update: gradients are added up, a scaler skips them
_FAST = (torch.Tensor, torch.nn.Parameter)


class Watching:
    """Asks it, chooses the `depth` of the coming step, and keeps what it then did not see.

    Called between ops, with no mode active and without grad where it computes.
    """

    def __init__(self, context: RunContext, symptoms: Symptoms, depth: Depth) -> None:
        self.context = context
        self.symptoms = symptoms
        self.depth = depth
        self.leaves: Callable[[], Iterable[torch.Tensor]] = (
            tuple  # that the program is known to have
        )
        self._clean = 0  # what the steps below it have left was finite
        self._next = 0  # the step after which to look at the parameters again
        self._unexamined: Unexamined | None = None
        self._had_optimizer: bool | None = None
        self._seen = graph.SeenNodes()

    # Between two steps

    def is_clean(self) -> bool:
        """Whether nothing bad is left of the steps so far, the gradients included."""
        leaves = list(self.leaves())
        if not all_finite(leaf.grad for leaf in leaves):
            return False
        self._next = 0
        self._check_parameters(leaves)
        return not (self.symptoms.confirmed or self.symptoms.are_waiting)

    def look_in_full_from(self, step: int | None) -> None:
        self.depth.full_from = step
        if step is not None and step <= self.context.step:
            self.depth.look_in_full(self.context.step)

    def begin_backward(self, updates: int | None) -> None:
        """After so many updates by optimizers (None: without one). An update by hand may follow a
        backward: where no optimizer tells when it is over, the step lasts until the next one."""
        if not self.depth.is_full or self.context.bad_in_step:
            return
        long_ago = self.context.step - self.depth.full_since > _LONGEST
        is_over = updates is None and not self._has_optimizer()
        if is_over or (long_ago and self.depth.full_from is None):
            self._choose(updates)

    def _has_optimizer(self) -> bool:
        """One that was made before anybody looked, and has not stepped yet."""
        if self._had_optimizer is None:
            self._had_optimizer = any_alive(torch.optim.Optimizer)
        return self._had_optimizer

    def end_backward(self, updates: int | None) -> None:
        if updates is None:
            self._check_parameters(list(self.leaves()))
            self._choose(updates, may_watch=False)

    def end_update(self, work: Work, updates: int | None) -> None:
        if work.over:
            self._check_parameters(list(parameters_of(work.optimizer)))
            self._choose(updates)

    def _choose(self, updates: int | None, *, may_watch: bool = True) -> None:
        step = self.context.step
        if self.depth.is_due(step, updates) or self.symptoms.are_waiting:
            self.depth.look_in_full(step)
        elif may_watch:
            self.depth.watch()

    # In a step

    def look_at_gradients(
        self, roots: list[torch.Tensor], nodes: list[Any], handed_out: Any, updates: int | None
    ) -> None:
        """Of a backward pass from `roots`, made by `nodes`: what it has handed out, else what the
        leaves have. What optimizers take is looked at when they do."""
        if self.depth.is_full or (updates is not None and not handed_out):
            return
        grads = handed_out
        if not handed_out:
            below = graph.consumers(nodes)
            self._seen.hold(roots, list(below))
            grads = [leaf.grad for leaf in graph.leaves(below)]
        self.context.bad_in_step |= not all_finite(grads)

    def begin_update(self, work: Work) -> None:
        if not self.depth.is_full:
            grads = [parameter.grad for parameter in parameters_of(work.optimizer)]
            if not all_finite(grads):
                self.symptoms.note_bad_gradients(work.optimizer)

    def _check_parameters(self, held: list[torch.Tensor]) -> None:
        """Now and then, since what is NaN stays so. With them the buffers, which no optimizer
        holds and a bad value may come from."""
        step = max(self.context.step - 1, 0)
        if step < self._next:
            return
        self._next = step + _EVERY
        if not all_finite(held):
            if not self.depth.is_full:
                self.symptoms.note_bad_parameters(held)
            return
        modules = self.context.names.running.values()
        if all_finite(buffer for module in modules for buffer in module.buffers()):
            self._clean = step + 1

    # What was not seen

    def note_confirmed(self) -> None:
        """There are symptoms. From now on, if the program goes on, every step is worth a look."""
        if self._unexamined is None and not self._are_examined():
            first = min(self.symptoms.confirmed, key=lambda symptom: symptom.step)
            self._unexamined = Unexamined(first.step, self._clean, first.subject)
            self.depth.full_from = self.context.step

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

    def unexamined(self, ending: Ending) -> Unexamined | None:
        """Of a program that ended like this."""
        if self._unexamined is None and ending.gave_up and not self.depth.is_full:
            return Unexamined(self.context.step, self._clean, None)
        return self._unexamined


def all_finite(tensors: Iterable[Any]) -> bool:
    """Whether none of them holds NaN or inf: by one fused pass over all, and exactly where that
    says no, since squares may leave the range of the dtype. What is no tensor is passed over."""
    present = [one for one in tensors if isinstance(one, torch.Tensor) and one.numel()]
    if not present:
        return True
    if all(type(one) in _FAST and one.layout is torch.strided for one in present):
        try:
            norms = torch._foreach_norm(present, 2.0)
            total = (torch.stack(norms).sum() if len(norms) > 1 else norms[0]).item()
            if total - total == 0.0:
                return True
        except (RuntimeError, NotImplementedError, TypeError):
            pass  # integers, float8, several devices
    return not any(map(holds_bad, present))
