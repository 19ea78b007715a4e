"""Runs beside the program: one total a step, and the details at the steps that are inspected.

It has the arithmetic of `torch.nn.utils.clip_grad_norm_`, without touching the gradients: every
result of that has the bits that torch's own would have, by the same reductions in the same order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradscope.facts import Leaf
from gradscope.norms.facts import TORCH_EPS, Measured, NormOptions, Row
from gradscope.record.census import census
from gradscope.record.finite import dtype_of, local, pieces
from gradscope.record.sizes.crossings import norm_of

_VALUES_SHOWN = 8  # elements of a gradient small enough to be written out


class Measure:
    """Told by the magnitude watch about each backward and each update. Reads, never writes."""

    def __init__(self, options: NormOptions) -> None:
        self.options = options
        self.forget()

    def forget(self) -> None:
        """Discard what was measured so far, if anything: it was not training."""
        self._totals: list[float] = []
        self._exact: list[float] = []
        self._steps: list[int] = []
        self._rows: list[Row] = []
        self._shown = 0
        self._coefficient: float | None = None
        self._before: dict[str, Tensor] = {}
        self._moved: dict[str, tuple[float, float]] = {}
        self._parts: list[dict[str, float]] = []

    def after_backward(
        self,
        step: int,
        graded: Sequence[tuple[Tensor, Tensor]],
        leaf_of: Callable[[Tensor], Leaf],
        inspected: bool,
    ) -> None:
        leaves = [leaf_of(leaf) for leaf, _ in graded]
        grads = [local(grad) for _, grad in graded]
        is_sharded = any(leaf.shard is not None for leaf in leaves)
        p = self.options.norm_type
        total = total_norm([grad for grad in grads if grad.numel()], p)
        value = float(total.item())
        self._steps.append(step)
        self._totals.append(value)
        self._exact.append(value if math.isfinite(value) else exact_norm(grads, p))
        parts = zip(leaves, grads, strict=True) if is_sharded else ()
        self._parts.append({leaf.name: exact_one(grad, p) for leaf, grad in parts})
        if not inspected:
            return
        self._shown = len(self._steps) - 1
        self._moved = {}
        scaled: Sequence[Tensor | None] = [None] * len(grads)
        if self.options.max_norm is not None:
            scale = coefficient(total, self.options.max_norm)
            self._coefficient = float(scale.item())
            scaled = clipped(grads, scale)
        self._rows = [
            self._row(leaf, grad, after)
            for leaf, grad, after in zip(leaves, grads, scaled, strict=True)
        ]
        self._before = {leaf_of(leaf).name: local(leaf).detach().clone() for leaf, _ in graded}

    def after_update(self, leaves: Sequence[Tensor], name: Callable[[Tensor], str]) -> None:
        """How far the optimizer moved each parameter, against the parameter's own norm."""
        for leaf in leaves:
            before = self._before.pop(name(leaf), None)
            if before is not None:
                size = norm_of(before)
                moved = norm_of(before.sub_(local(leaf).detach()))
                self._moved[name(leaf)] = (moved, size)
        self._before = {}

    def note_clip(self, bound: float, total: Tensor | None) -> None:
        """The program's own clipping: nothing is measured about it here."""

    def facts(self) -> Measured:
        rows = (replace(row, moved=self._moved.get(row.name)) for row in self._rows)
        return Measured(
            steps=tuple(self._steps),
            totals=tuple(self._totals),
            exact=tuple(self._exact),
            shown=self._shown,
            rows=tuple(rows),
            coefficient=self._coefficient,
            parts=tuple(self._parts),
        )

    def _row(self, leaf: Leaf, grad: Tensor, after: Tensor | None) -> Row:
        """`grad` is the part of the leaf's gradient that is here, `after` the same once clipped."""
        values, p = dense(grad), self.options.norm_type
        later = dense(after) if after is not None else values.new_empty(0)
        shape = tuple(grad.shape) if leaf.shard is None else leaf.shape
        norm, counts = _norm(values, p), census(values)
        stored = values.numel() // (2 if grad.is_complex() else 1)
        return Row(
            name=leaf.name,
            shape=shape,
            dtype=dtype_of(grad),
            numel=math.prod(shape),
            norm=norm if math.isfinite(norm) else exact_one(grad, p),
            max_abs=counts.largest or 0.0,
            zeros=counts.zeros + grad.numel() - stored,
            bad=counts.bad,
            clipped=_norm(later, p) if later.numel() else None,
            values=_written_out(values),
            clipped_values=_written_out(later),
            sparse=grad.layout is not torch.strided,
            shard=leaf.shard,
        )


def _norm(values: Tensor, p: float) -> float:
    return float(torch.linalg.vector_norm(values, p).item()) if values.numel() else 0.0


def _written_out(values: Tensor) -> tuple[float, ...]:
    return tuple(values.reshape(-1).tolist()) if values.numel() <= _VALUES_SHOWN else ()


def total_norm(
    grads: Sequence[Tensor], norm_type: float = 2.0, foreach: bool | None = None
) -> Tensor:
    """The norm of all gradients as one vector: 0-d, of the dtype and device that torch gives it.

    Sparse gradients count with their coalesced values; torch's own function raises on them.
    """
    taken = [grad if grad.layout is torch.strided else dense(grad) for grad in grads]
    return torch.nn.utils.get_total_norm(taken, norm_type, foreach=foreach)


def coefficient(total: Tensor, max_norm: float) -> Tensor:
    """What the gradients would be multiplied by: at most 1; NaN where the total is."""
    return torch.clamp(float(max_norm) / (total + TORCH_EPS), max=1.0)


def clipped(grads: Sequence[Tensor], scale: Tensor) -> list[Tensor]:
    """Copies of the gradients, clipped."""
    return [grad.clone().mul_(scale.to(grad.device)) for grad in grads]


def exact_norm(grads: Sequence[Tensor], norm_type: float = 2.0) -> float:
    """The total over the finite elements in float64, where the squares of float32 still fit."""
    norms = [exact_one(grad, norm_type) for grad in grads]
    if not norms:
        return 0.0
    stacked = torch.tensor(norms, dtype=torch.float64)
    return float(torch.linalg.vector_norm(stacked, norm_type).item())


def exact_one(grad: Tensor, norm_type: float = 2.0) -> float:
    """The norm of the finite elements in float64, scaled by the largest so that no power of it
    overflows."""
    values = dense(grad)
    largest = census(values).largest
    if not largest:
        return 0.0
    norms = []
    for piece in pieces(values):
        scaled = piece[torch.isfinite(piece)].double() / largest
        norms.append(torch.linalg.vector_norm(scaled, norm_type).item())
    if norm_type == 0:  # a count, of which there is no norm
        return largest * float(sum(norms))
    together = torch.tensor(norms, dtype=torch.float64)
    return largest * float(torch.linalg.vector_norm(together, norm_type).item())


def dense(grad: Tensor) -> Tensor:
    """The values that a gradient holds, complex ones as pairs, a sparse one's duplicates summed."""
    grad = grad.detach()
    if grad.layout is torch.sparse_coo:
        grad = grad.coalesce().values()
    elif grad.layout is not torch.strided:
        grad = grad.values()
    return torch.view_as_real(grad.resolve_conj()) if grad.is_complex() else grad
