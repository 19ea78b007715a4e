"""Whether the gradient of a step that is only watched is absurd beside those before it."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradscope.record.finite import plain
from gradscope.record.tracing import unobserved

_SURGE = 1e4  # times the largest so far: batches differ by a hundred at most
_FEWEST = 2  # steps before, that are told by
_SMALL = 2**12  # elements: their norm costs a few microseconds


class Surges:
    """Samples one small leaf a step: the last one on the way back, through which most of the graph
    is differentiated. Its norm is read one step later, so that no device is waited for."""

    def __init__(self) -> None:
        self.first: int | None = None  # the first step that was
        self._leaf: torch.Tensor | None = None
        self._waiting: tuple[int, torch.Tensor] | None = None
        self._largest = 0.0
        self._known = 0

    def sample(self, step: int, leaves: Iterable[torch.Tensor]) -> None:
        """After a backward; `leaves` are those of the program, in the order of their gradients."""
        self.settle()
        if self.first is not None:
            return
        leaf = self._leaf
        if leaf is None or leaf.grad is None:
            graded = [one for one in leaves if one.grad is not None and one.numel() <= _SMALL]
            self._leaf = leaf = graded[-1] if graded else None
            self._largest, self._known = 0.0, 0
        values = plain(leaf.grad) if leaf is not None and leaf.grad is not None else None
        if values is not None:
            with unobserved():
                self._waiting = step, torch.linalg.vector_norm(values)

    def settle(self) -> None:
        """Read what was sampled last."""
        if self._waiting is None:
            return
        step, norm = self._waiting[0], float(self._waiting[1])
        self._waiting = None
        if self._known >= _FEWEST and _SURGE * self._largest < norm < float("inf"):
            self.first = step if self._largest else None
        self._largest, self._known = max(self._largest, norm), self._known + 1
