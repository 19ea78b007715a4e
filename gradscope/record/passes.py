"""One backward pass as autograd's engine is asked for it, and the gradients that come of it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple, Protocol

import torch

from gradscope.facts import Leaf
from gradscope.record import graph
from gradscope.record.finite import Number, is_indirect, is_number, is_wrapped, sum_of, unwrapped

_LEAP = 2.0  # times the loss of the step before

Graded = list[tuple[torch.Tensor, torch.Tensor]]  # leaves with the gradients that a pass gave them


class Measure(Protocol):
    """What a command measures on top. Called with no mode active and without grad."""

    def after_backward(
        self, step: int, graded: Graded, leaf_of: Callable[[torch.Tensor], Leaf], inspected: bool
    ) -> None:
        """`graded` is in module order; of each leaf `leaf_of` tells what is known."""

    def after_update(
        self, leaves: Sequence[torch.Tensor], name: Callable[[torch.Tensor], str]
    ) -> None: ...

    def note_clip(self, bound: float, total: torch.Tensor | None) -> None:
        """The program has clipped gradients, by value where there is no `total` norm."""

    def forget(self) -> None:
        """What was measured so far was not training."""

    def facts(self) -> object: ...


class BackwardPass:
    """`roots` are what is differentiated, `nodes` made them, `frame` asks for it. `handed` are the
    leaves whose gradients `torch.autograd.grad` and `torch.func.grad` hand out; none where
    `backward` adds them to the leaves' own, which `accumulates`. `asked` are those of them that
    the program may train with: none where what is handed out is differentiated again."""

    def __init__(self, outputs: Any, args: Any, kwargs: Any, frame: FrameType) -> None:
        self.outputs, self.args, self.kwargs, self.frame = outputs, args, kwargs, frame
        self.roots = [root for root in outputs if isinstance(root, torch.Tensor)]
        self.nodes = [root.grad_fn for root in self.differentiable]
        self.accumulates: bool = kwargs.get("accumulate_grad", False)
        self.create_graph, self.is_step = False, True  # this, to those that measure sizes
        self.functional = False  # inside of a transform of `torch.func`, or of what one returned
        self.inputs: tuple[torch.Tensor, ...] = ()
        self.handed: tuple[torch.Tensor, ...] = ()
        self.asked: tuple[torch.Tensor, ...] = ()
        self._number: Number | None = None
        if not self.accumulates:
            self._note_asked(args)

    def _note_asked(self, args: Any) -> None:
        """No step is a pass that is differentiated again, that hands out the gradients of what is
        no leaf, or many at once."""
        self.functional = functional = torch._C._are_functorch_transforms_active() or any(
            map(is_wrapped, self.roots)  # of `torch.func.vjp`, which is over by then
        )
        self.create_graph = bool(args[2]) and not functional if len(args) > 2 else False
        self.inputs = (args[3] if len(args) > 3 else ()) or ()
        tensors = tuple(one for one in self.inputs if _is_tensor(one))
        # What `torch.func` has wrapped may be an intermediate value of the program's.
        self.handed = tuple(one for one in tensors if unwrapped(one).is_leaf)
        if any(_is_tensor(grad) and is_indirect(grad) for grad in (args[0] if args else ()) or ()):
            self.is_step = False  # a Jacobian: a gradient for each of many `grad_outputs` at once
        elif functional:
            nested = any(map(_is_differentiated_again, self.differentiable))
            self.asked = () if nested else tuple(map(unwrapped, self.handed))
        else:
            self.is_step = bool(self.handed) and not self.create_graph
            self.asked = self.handed if self.is_step else ()

    @property
    def differentiable(self) -> list[torch.Tensor]:
        """The roots that are no leaves."""
        return [root for root in self.roots if root.grad_fn is not None]

    @cached_property
    def above(self) -> dict[Any, list[Any]]:
        """For each node that the pass goes through, those that hand it its gradient. Walked once,
        for all that ask."""
        return graph.consumers(self.nodes)

    @property
    def trains(self) -> bool:
        """Whether its gradients may be what the program trains with."""
        return self.accumulates or bool(self.asked)

    def ask_for_loss(self) -> None:
        """Before the pass runs: what hooks then do to the roots is not the loss."""
        if len(self.roots) == 1 and is_number(self.roots[0]):
            self._number = Number(self.roots[0])
        if self.knows_loss:
            self.loss  # noqa: B018 (read once)

    @property
    def knows_loss(self) -> bool:
        """Whether nobody has to wait for it."""
        return self._number is None or self._number.is_known

    @cached_property
    def loss(self) -> float | None:
        """The sum of the roots; None where one cannot be read."""
        with suppress(RuntimeError, TypeError):
            return self._number.read() if self._number is not None else sum_of(self.roots)
        return None

    def handed_out(self, result: Any) -> Graded:
        """The leaves that were asked for, with what came back."""
        asked = {id(leaf) for leaf in self.asked}
        pairs = zip(self.inputs, result or (), strict=False)
        return [
            (leaf, unwrapped(grad))
            for leaf, grad in ((unwrapped(one), grad) for one, grad in pairs if _is_tensor(one))
            if id(leaf) in asked and _is_tensor(grad)
        ]


Engine = Callable[[BackwardPass], Any]  # runs a pass


class Passed(NamedTuple):
    """What went by without being looked at: so many passes, with the last loss and the sequence
    counter as the last of them left it, and the updates in between: the step, and which optimizer
    by id."""

    passes: int
    loss: float
    made_until: int
    updates: Sequence[tuple[int, int]]


def has_leapt(loss: float | None, before: float | None) -> bool:
    """Whether a loss is that much beyond the one before it, or is NaN."""
    return loss is not None and before is not None and not abs(loss) <= _LEAP * abs(before)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _is_differentiated_again(root: torch.Tensor) -> bool:
    """Whether another torch.func.grad is around the one that asks."""
    while is_wrapped(root):
        root = torch._C._functorch.get_unwrapped(root)
        if is_wrapped(root) and root.requires_grad:
            return True
    return False
