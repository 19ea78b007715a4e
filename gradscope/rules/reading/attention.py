"""Attention whose scores are too large, forward or for a backward that computes them again."""

from __future__ import annotations

from gradscope.facts import Event, Operand, Phase
from gradscope.ops.dtypes import finfo
from gradscope.rules.wording import phrases

_INNOCENT = "Nothing is wrong with the mask: query and key are far too large."


def is_attention(event: Event) -> bool:
    """A fused op that makes its scores of `query` and `key` by itself."""
    return event.operand("query") is not None and event.operand("key") is not None


def why_scores_break(event: Event) -> str | None:
    """How the scores of an attention break, where the measured sizes show that they do."""
    if event.phase is Phase.BACKWARD:
        rows = event.operand("logsumexp")
        return _lost_digits(rows) if rows is not None else None
    return _overflow(event)


def _overflow(event: Event) -> str | None:
    """A fused op names no scores. Their bound is the largest query times the largest key, once for
    each channel; where no row is masked throughout, NaN of finite operands can be nothing else."""
    query, key = event.operand("query"), event.operand("key")
    if query is None or key is None or query.bad or key.bad or not query.shape:
        return None
    if any(one.masked_rows for one in event.operands):
        return None
    bound = size_of(query) * size_of(key) * query.shape[-1]
    largest = finfo(query.dtype).max
    if bound <= largest:
        return None
    return (
        f"A score is the sum of {query.shape[-1]} products of a query and a key. Queries reach"
        f" {phrases.number(size_of(query))} and keys {phrases.number(size_of(key))}, and the"
        f" largest {query.dtype} number is {largest:.5g}: scores become inf, and inf - inf inside"
        f" of the softmax is NaN. {_INNOCENT}"
    )


def _lost_digits(rows: Operand) -> str | None:
    """The logsumexp of the rows shows scores so large that the dtype keeps no fraction of them.

    A fused kernel saves one number a row, and its backward takes exp(score - logsumexp), which is
    at most 1. Where neighbouring numbers are farther apart than 1, rounding makes it anything.
    """
    size, apart = size_of(rows), size_of(rows) * finfo(rows.dtype).eps
    if apart <= 1:
        return None
    return (
        "Attention saves no weights: its backward computes them again, as exp(score - logsumexp),"
        f" which is at most 1. Its scores reach {phrases.number(size)}, where neighbouring"
        f" {rows.dtype} numbers are {phrases.number(apart)} apart, so the difference is wrong by"
        f" that much and exp of it is inf. {_INNOCENT}"
    )


def size_of(rows: Operand) -> float:
    return max(abs(rows.min or 0.0), abs(rows.max or 0.0))
