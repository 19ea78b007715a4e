"""How large the results of the forward pass are, at the nodes that backward will come through."""

from __future__ import annotations

import math
from typing import Any

import torch

from gradscope.facts import Activation
from gradscope.record.finite import plain
from gradscope.record.sizes.crossings import norm_of
from gradscope.record.tracing import computes_values, unobserved


class Activations:
    """Norms of results by the sequence number of their node, for one forward pass.

    Holds 0-d tensors and no activation. Those of a GPU are read once, when backward is over, so
    that it is not waited for at each op.
    """

    def __init__(self) -> None:
        self._norms: dict[int, list[float | torch.Tensor]] = {}
        self._numels: dict[int, int] = {}

    def note(self, seq: int, out: Any) -> None:
        """The result of the op that made a node; one that comes later under its number counts."""
        found = [plain(one) for one in _results(out)]
        values = [one for one in found if one is not None and one.numel()]
        if not values or not computes_values():
            return
        with unobserved():
            self._norms[seq] = [_norm(one) for one in values]
        self._numels[seq] = sum(one.numel() for one in values)

    def read(self) -> dict[int, Activation]:
        """All norms, in one transfer a device."""
        waiting: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
        total = dict.fromkeys(self._norms, 0.0)
        for seq, norms in self._norms.items():
            for norm in norms:
                if isinstance(norm, torch.Tensor):
                    waiting.setdefault(norm.device, []).append((seq, norm))
                else:
                    total[seq] = math.hypot(total[seq], norm)
        for group in waiting.values():
            numbers = torch.stack([norm for _, norm in group]).tolist()
            for (seq, _), number in zip(group, numbers, strict=True):
                total[seq] = math.hypot(total[seq], number)
        return {seq: Activation(norm, self._numels[seq]) for seq, norm in total.items()}


def _norm(values: torch.Tensor) -> float | torch.Tensor:
    if values.device.type == "cpu":
        return norm_of(values)
    # Squares of float32 overflow from 1.8e19 on; not every device has float64.
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=wide)
    return norm


def _results(out: Any) -> list[torch.Tensor]:
    """Of several results the first: the others are statistics and masks, but for a list's."""
    if isinstance(out, tuple):
        out = list(out[:1])
    results = out if isinstance(out, list) else [out]
    return [one for one in results if isinstance(one, torch.Tensor)]
