"""Whether a gradient is absurd beside those before it."""

import math
from collections.abc import Callable, Iterable

import torch

from gradscope.record.finite import item

_SURGE = 1e4  # times the largest so far: batches differ by a hundred at most
_FEWEST = 2  # steps before, that are told by
_SAMPLED = 2**12  # elements: their product with themselves costs a microsecond


class Surges:
    """Samples one small leaf a step: the last one on the way back, through which most of the graph
    is differentiated. Its size is read one step later, so that no device is waited for."""

    def __init__(self, leaves: Callable[[], Iterable[torch.Tensor]]) -> None:
        """`leaves` gives those of the program, in the order of their gradients."""
        self.first: int | None = None  # the first step that was
        self._leaves = leaves
        self._leaf: torch.Tensor | None = None
        self._waiting: tuple[int, torch.Tensor] | None = None
        self._largest = 0.0
        self._known = 0

    def sample(self, step: int) -> torch.Tensor | None:
        """After a backward, unobserved. The leaf whose gradient is now known to be finite."""
        self.settle()
        if self.first is not None:
            return None
        grad = self._leaf.grad if self._leaf is not None else None
        if grad is None:
            grad = self._choose(self._leaves())
            if grad is None:
                return None
        plain = grad.detach() if grad.requires_grad else grad
        flat = plain if plain.dim() == 1 else plain.reshape(-1)
        self._waiting = step, torch.dot(flat, flat)
        return self._leaf if grad.is_cpu and self.settle() < math.inf else None

    def _choose(self, leaves: Iterable[torch.Tensor]) -> torch.Tensor | None:
        graded = [leaf for leaf in leaves if leaf.numel() <= _SAMPLED and _is_plain(leaf.grad)]
        self._leaf = graded[-1] if graded else None
        self._largest, self._known = 0.0, 0
        return self._leaf.grad if self._leaf is not None else None

    def settle(self) -> float:
        """Read what was sampled last: the size of that gradient."""
        if self._waiting is None:
            return math.nan
        step, square = self._waiting
        self._waiting = None
        size = math.sqrt(max(item(square), 0.0))
        if self._known >= _FEWEST and 0.0 < _SURGE * self._largest < size < math.inf:
            self.first = step
        self._largest, self._known = max(self._largest, size), self._known + 1
        return size


def _is_plain(grad: torch.Tensor | None) -> bool:
    if type(grad) is not torch.Tensor or grad.layout is not torch.strided or grad.is_meta:
        return False
    return grad.dtype in (torch.float32, torch.float64)
