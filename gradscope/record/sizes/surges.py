"""Whether a gradient is absurd beside those before it."""

import math

import torch

from gradscope.record.finite import Number
from gradscope.record.sizes.leaves import Watched, has_memory

_norm = torch.linalg.vector_norm
_SURGE = 1e4  # times the largest so far: batches differ by a hundred at most
_FEWEST = 2  # steps before, that are told by
_MEASURED = (torch.float32, torch.float64)
_SAMPLED = 2**12  # elements: their norm costs a microsecond


class Surges:
    """Samples one small leaf a step: the last one on the way back, through which most of the graph
    is differentiated. Its size on a device is read one step later, so that none is waited for."""

    def __init__(self, leaves: dict[str, Watched]) -> None:
        """`leaves` are those of the program, in the order of their gradients."""
        self.first: int | None = None  # the first step that was
        self._leaves = leaves
        self._sampled: Watched | None = None
        self._waiting: tuple[int, Number] | None = None
        self._largest = 0.0
        self._known = 0

    def sample(self, step: int) -> torch.Tensor | None:
        """After a backward, unobserved. The leaf whose gradient is now known to be finite."""
        if self._waiting is not None:
            self.settle()
        if self.first is not None:
            return None
        leaf = self._sampled.ref() if self._sampled is not None else None
        grad = leaf.grad if leaf is not None else None
        if leaf is None or grad is None:
            leaf = self._choose()
            grad = leaf.grad if leaf is not None else None
            if grad is None:
                return None
        norm = Number(_norm(grad.detach() if grad.requires_grad else grad))
        if not norm.is_known:
            self._waiting = step, norm
            return None
        return leaf if self._note(step, norm.read()) < math.inf else None

    def _choose(self) -> torch.Tensor | None:
        self._sampled, self._largest, self._known = None, 0.0, 0
        for watched in reversed(self._leaves.values()):
            leaf = watched.ref()
            grad = leaf.grad if leaf is not None and leaf.numel() <= _SAMPLED else None
            if grad is not None and has_memory(grad) and grad.dtype in _MEASURED:
                self._sampled = watched
                return leaf
        return None

    def settle(self) -> None:
        """Read what was sampled last."""
        if self._waiting is not None:
            (step, norm), self._waiting = self._waiting, None
            self._note(step, norm.read())

    def _note(self, step: int, size: float) -> float:
        """The size of that gradient."""
        if self._known >= _FEWEST and 0.0 < _SURGE * self._largest < size < math.inf:
            self.first = step
        self._largest, self._known = max(self._largest, size), self._known + 1
        return size
