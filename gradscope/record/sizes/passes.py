"""One backward pass as autograd's engine is asked for it, and the gradients that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gradscope.record.finite import is_indirect, sum_of, unwrapped

Graded = list[tuple[torch.Tensor, torch.Tensor]]  # leaves with the gradients that a pass gave them


class Measure(Protocol):
    """What a command measures on top. Called with no mode active and without grad."""

    def after_backward(
        self, step: int, graded: Graded, name: Callable[[torch.Tensor], str], inspected: bool
    ) -> None:
        """`graded` is in module order."""

    def after_update(
        self, leaves: Sequence[torch.Tensor], name: Callable[[torch.Tensor], str]
    ) -> None: ...

    def forget(self) -> None:
        """What was measured so far was not training."""

    def facts(self) -> object: ...


@dataclass(frozen=True, slots=True)
class BackwardPass:
    """`roots` are what is differentiated. `asked` are the leaves whose gradients
    `torch.autograd.grad` and `torch.func.grad` hand out; none where `backward` adds them to the
    leaves' own, nor where what is handed out is differentiated again."""

    roots: tuple[torch.Tensor, ...]
    asked: tuple[torch.Tensor, ...]
    accumulates: bool

    @property
    def trains(self) -> bool:
        """Whether its gradients may be what the program trains with."""
        return self.accumulates or bool(self.asked)

    @classmethod
    def of(cls, outputs: Any, args: Any, kwargs: Any) -> BackwardPass | None:
        """None for a pass that is no step: one that is differentiated again, that hands out the
        gradients of what is no leaf, or many at once."""
        roots = tuple(
            root for root in outputs if isinstance(root, torch.Tensor) and root.grad_fn is not None
        )
        if kwargs.get("accumulate_grad", False):
            return cls(roots, (), True)
        if any(_is_tensor(grad) and is_indirect(grad) for grad in (args[0] if args else ()) or ()):
            return None  # a Jacobian: a gradient for each of many `grad_outputs` at once
        functional = torch._C._are_functorch_transforms_active()
        create_graph = bool(args[2]) and not functional if len(args) > 2 else False
        inputs = [one for one in (args[3] if len(args) > 3 else ()) or () if _is_tensor(one)]
        if functional:
            nested = any(map(_is_differentiated_again, roots))
            return cls(roots, () if nested else tuple(map(unwrapped, inputs)), False)
        asked = tuple(one for one in inputs if one.is_leaf)
        return cls(roots, asked, False) if asked and not create_graph else None

    def handed_out(self, inputs: Sequence[Any], result: Any) -> Graded:
        """The leaves that were asked for, with what came back."""
        asked = {id(leaf) for leaf in self.asked}
        pairs = zip(inputs, result or (), strict=False)
        return [
            (leaf, unwrapped(grad))
            for leaf, grad in ((unwrapped(one), grad) for one, grad in pairs if _is_tensor(one))
            if id(leaf) in asked and _is_tensor(grad)
        ]

    def loss(self) -> float | None:
        """The sum of the roots; None where one cannot be read."""
        return sum_of(self.roots)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _is_differentiated_again(root: torch.Tensor) -> bool:
    """Whether another torch.func.grad is around the one that asks."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(root):
        root = functorch.get_unwrapped(root)
        if functorch.is_functorch_wrapped_tensor(root) and root.requires_grad:
            return True
    return False
