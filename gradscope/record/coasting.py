"""The steps between two that are watched, in a run that goes on as it did: of each only the loss is
asked, and how large one gradient is. What else there is to tell of them, the watched ones tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch

from gradscope.record.context import RunContext
from gradscope.record.finite import Number, all_finite, is_number
from gradscope.record.limit import Limit, Steps
from gradscope.record.optimizers import LetsPass
from gradscope.record.passes import Passed, has_leapt
from gradscope.record.schedule import between_looks
from gradscope.record.sites import user_site
from gradscope.record.sizes.clearing import Versions, changed_since, versions_of
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.tracing import computes_values, is_jit_tracing, is_observed, unobserved

_SECONDS = 0.25  # so long nobody shows progress, or takes a snapshot
_sequence_nr = torch._C._autograd._get_sequence_nr


class Coasting(LetsPass):
    """Lets passes and updates go by, as long as `passes` may. `context.coasts` meanwhile, for what
    stands in for functions of torch's.

    It ends with the last of them, with an update after which somebody has to look, and before
    whatever is not as it was; `sizes` is then told what has passed. `on_suspect` is told of a pass
    whose gradients are not finite, or others', by what was differentiated and the frame, and
    `on_pass` of each.
    """

    def __init__(
        self,
        context: RunContext,
        limit: Limit,
        sizes: Sizes,
        on_suspect: Callable[[torch.Tensor, FrameType], None],
        on_pass: Callable[[int], None],
    ) -> None:
        self.passes = 0
        self._context, self._limit, self._sizes = context, limit, sizes
        self._on_suspect, self._on_pass = on_suspect, on_pass
        self._ran = Steps()
        self._gone = 0  # passes
        self._left = 0  # updates that may yet go by
        self._updates: list[tuple[int, int]] = []
        self._known: Collection[int] = ()  # optimizers, by id
        self._awaited: set[int] = set()
        self._loss = 0.0
        self._made = self._made_until = 0
        self._leaves: Sequence[torch.Tensor] | None = None

    def may_begin_after(self, optimizer: Any) -> bool:
        """An update of it was watched: whether that of each which went by the last time was."""
        self._awaited.discard(id(optimizer))
        return not self._awaited

    def begin(
        self, ran: Steps, passes: float, updates: float, leaves: Sequence[torch.Tensor] | None
    ) -> None:
        """Let so many go by at most, which `ran` counts. The gradients of `leaves`, which the last
        pass has reached, are asked for where no optimizer tells what becomes of them: of passes
        whose graph is as large as that."""
        inspection, loss = self._sizes.inspection, self._sizes.loss
        most = between_looks(len(ran)) - 1
        passes = min(passes, _SECONDS / max(ran.seconds_of_last, 1e-6))
        if leaves is not None:
            passes = min(passes, most)
        self.passes, self._left = int(passes), int(min(updates, most))
        if self.passes <= 0 or self._left <= 0 or loss is None:
            self.passes = 0
            return
        self._context.coasts = True
        self._ran, self._gone, self._updates = ran, 0, []
        self._loss, self._leaves = loss, leaves
        self._known = self._sizes.usages.stepped
        self._made, self._made_until = inspection.made, _sequence_nr()

    @property
    def may_pass(self) -> bool:
        """Whether the coming pass may go by as far as is known, which is in no other one."""
        return self.passes > 0 and not self._context.nested

    def run(
        self, engine: Callable[..., Any], outputs: Any, args: Any, kwargs: Any, frame: FrameType
    ) -> Any:
        """Run the engine for the coming pass, as `frame` asks. NotImplemented where that is not as
        those before it, and has to be looked at: it is the end then."""
        result: Any = NotImplemented
        if len(outputs) == 1 and kwargs.get("accumulate_grad") and not is_jit_tracing():
            as_ever = partial(engine, outputs, *args, **kwargs)
            if not is_observed():
                result = self._run(as_ever, outputs[0], frame)
            elif computes_values():
                with unobserved() as ours:
                    result = self._run(partial(ours.except_for, as_ever), outputs[0], frame)
        if result is NotImplemented:
            self.end()
        return result

    def _run(self, engine: Callable[[], Any], root: torch.Tensor, frame: FrameType) -> Any:
        made = _sequence_nr() - self._made_until
        is_alike = self._leaves is None or made == self._made
        if not (is_alike and made <= self._sizes.inspection.most_made and is_number(root)):
            return NotImplemented
        number = Number(root)
        if number.is_known and has_leapt(number.read(), self._loss):
            return NotImplemented
        context, leaves = self._context, self._leaves
        before = versions_of(leaves) if leaves is not None else None
        context.nested, context.is_torn = 1, True
        try:
            result = engine()
        except BaseException:
            context.nested = 0
            self.end()
            raise
        context.nested, context.is_torn = 0, False
        loss = number.read()
        is_alike = not has_leapt(loss, self._loss)
        self._ran.add(loss, user_site(frame))
        self._made_until = _sequence_nr()
        self._loss = loss
        self._gone += 1
        self.passes -= 1
        known = self._sizes.surges.sample(context.step)
        if is_alike and (before is None or self._are_finite(before, known)):
            context.step += 1
        else:
            self.end()
            self._on_suspect(root, frame)
            context.end_step()
        self._on_pass(context.step)
        if not self.passes:
            self.end()
        return result

    def _are_finite(self, before: Versions, known: torch.Tensor | None) -> bool:
        """Whether a pass gave each of the leaves a gradient, and finite ones. That of one is known
        to be."""
        leaves = self._leaves or ()
        if len(changed_since(before, leaves)) < len(leaves):
            return False
        if len(leaves) == 1 and leaves[0] is known:
            return True
        with unobserved():
            return all_finite(leaf.grad for leaf in leaves)

    def lets_step(self, optimizer: Any, *, has_closure: bool) -> bool:
        if self._context.nested and self.passes:
            return True
        if self.passes and not has_closure and id(optimizer) in self._known:
            return True
        self.end()
        return False

    def note_step(self, optimizer: Any) -> None:
        self._limit.note_update(len(self._ran))
        if self._context.nested:  # a hook of the program's steps in the midst of a pass
            return
        self._updates.append((self._context.step - 1, id(optimizer)))
        self._left -= 1
        if not self._left:
            self.end()

    def end(self) -> None:
        """From now on all is looked at again."""
        if self._context.coasts:
            self._context.coasts, self.passes, self._leaves = False, 0, None
            self._awaited = {optimizer for _, optimizer in self._updates}
            passed = Passed(self._gone, self._loss, self._made_until, self._updates)
            self._context.turn_step()
            self._sizes.note_coasted(passed)
