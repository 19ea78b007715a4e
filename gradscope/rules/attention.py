"""Attention whose scores are too large for its backward, which computes the weights again."""

from __future__ import annotations

from gradscope.facts import Event, Operand, Phase
from gradscope.ops.dtypes import finfo
from gradscope.rules import phrases


def scores_too_large(event: Event) -> Operand | None:
    """The logsumexp of the rows, where it shows scores so large that the dtype keeps no fraction.

    A fused kernel saves one number a row, and its backward takes exp(score - logsumexp), which is
    at most 1. Where neighbouring numbers are farther apart than 1, rounding makes it anything.
    """
    rows = event.operand("logsumexp")
    if rows is None or event.phase is not Phase.BACKWARD:
        return None
    return rows if size_of(rows) * finfo(rows.dtype).eps > 1 else None


def size_of(rows: Operand) -> float:
    return max(abs(rows.min or 0.0), abs(rows.max or 0.0))


def mechanism(rows: Operand) -> str:
    size, apart = size_of(rows), size_of(rows) * finfo(rows.dtype).eps
    return (
        "Attention saves no weights: its backward computes them again, as exp(score - logsumexp),"
        f" which is at most 1. Its scores reach {phrases.number(size)}, where neighbouring"
        f" {rows.dtype} numbers are {phrases.number(apart)} apart, so the difference is wrong by"
        " that much and exp of it is inf. Nothing is wrong with the mask: query and key are far"
        " too large."
    )
