"""Runs beside the program: one total a step, and the details at the steps that are inspected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradscope.norms.clip import clipped, coefficient, dense, exact_norm, exact_one, total_norm
from gradscope.norms.facts import Measured, NormOptions, Row
from gradscope.record.census import census
from gradscope.record.finite import local, shard_of
from gradscope.record.sizes.crossings import norm_of

_VALUES_SHOWN = 8  # elements of a gradient small enough to be written out


class Measure:
    """Told by the magnitude watch about each backward and each update. Reads, never writes."""

    def __init__(self, options: NormOptions) -> None:
        self.options = options
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
        name: Callable[[Tensor], str],
        inspected: bool,
    ) -> None:
        leaves = [leaf for leaf, _ in graded]
        grads = [local(grad) for _, grad in graded]
        shards = {name(leaf): shard for leaf in leaves if (shard := shard_of(leaf)) is not None}
        p = self.options.norm_type
        total = total_norm([grad for grad in grads if grad.numel()], p)
        value = float(total.item())
        self._steps.append(step)
        self._totals.append(value)
        self._exact.append(value if math.isfinite(value) else exact_norm(grads, p))
        norms = [exact_one(grad, p) for grad in grads] if shards else []
        self._parts.append(dict(zip(map(name, leaves), norms, strict=bool(shards))))
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
            replace(self._row(name(leaf), grad, after), shard=shards.get(name(leaf)))
            for leaf, grad, after in zip(leaves, grads, scaled, strict=True)
        ]
        self._rows = [
            replace(row, shape=tuple(leaf.shape), numel=leaf.numel()) if row.shard else row
            for row, leaf in zip(self._rows, leaves, strict=True)
        ]
        self._before = {name(leaf): local(leaf).detach().clone() for leaf in leaves}

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
        """What the program clips by itself is not asked here."""

    def forget(self) -> None:
        """What was measured so far was not training."""
        self._steps, self._totals, self._exact, self._rows = [], [], [], []
        self._before, self._moved, self._parts = {}, {}, []

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

    def _row(self, name: str, grad: Tensor, after: Tensor | None) -> Row:
        values = dense(grad)
        p = self.options.norm_type
        norm = float(torch.linalg.vector_norm(values, p).item()) if values.numel() else 0.0
        counts = census(values)
        small = 0 < values.numel() <= _VALUES_SHOWN
        after_values = None if after is None else dense(after)
        return Row(
            name=name,
            shape=tuple(grad.shape),
            dtype=str(grad.dtype).removeprefix("torch."),
            numel=grad.numel(),
            norm=norm if math.isfinite(norm) else exact_one(grad, p),
            max_abs=max(abs(counts.min or 0.0), abs(counts.max or 0.0)),
            zeros=counts.zeros + grad.numel() - _stored(grad, values),
            bad=counts.bad,
            clipped=None
            if after_values is None or not after_values.numel()
            else float(torch.linalg.vector_norm(after_values, p).item()),
            values=tuple(values.reshape(-1).tolist()) if small else (),
            clipped_values=tuple(after_values.reshape(-1).tolist())
            if small and after_values is not None
            else (),
            sparse=grad.layout is not torch.strided,
        )


def _stored(grad: Tensor, values: Tensor) -> int:
    return values.numel() // (2 if grad.is_complex() else 1)
