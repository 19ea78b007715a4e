"""One backward pass as autograd's engine is asked for it, and the gradients that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gradscope.record.finite import plain

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
    `torch.autograd.grad` hands out; none where `backward` adds them to the leaves' own."""

    roots: tuple[torch.Tensor, ...]
    asked: tuple[torch.Tensor, ...]
    accumulates: bool

    @classmethod
    def of(cls, outputs: Any, args: Any, kwargs: Any) -> BackwardPass | None:
        """None for a pass that is no step: one that is differentiated again, or that hands out
        the gradients of what is no leaf."""
        roots = tuple(
            root for root in outputs if isinstance(root, torch.Tensor) and root.grad_fn is not None
        )
        if kwargs.get("accumulate_grad", False):
            return cls(roots, (), True)
        create_graph = bool(args[2]) if len(args) > 2 else False
        inputs = args[3] if len(args) > 3 else ()
        asked = tuple(one for one in inputs or () if isinstance(one, torch.Tensor) and one.is_leaf)
        return cls(roots, asked, False) if asked and not create_graph else None

    def handed_out(self, inputs: Sequence[Any], result: Any) -> Graded:
        """The leaves that were asked for, with what came back."""
        asked = {id(leaf) for leaf in self.asked}
        return [
            (leaf, grad)
            for leaf, grad in zip(inputs, result or (), strict=False)
            if id(leaf) in asked and isinstance(grad, torch.Tensor)
        ]

    def loss(self) -> float | None:
        """The sum of the roots; None where one cannot be read."""
        values = [plain(root) for root in self.roots]
        if any(value is None for value in values):
            return None
        return sum(float(value.sum(dtype=torch.float64)) for value in values if value is not None)
