"""Softmax, its logarithm, and what normalises by a sum of exponentials."""

import math
from collections.abc import Callable

from gradscope.ops.cures import FINITE, Cure
from gradscope.ops.edges import Edge, Holds, OpFact, Values, infinite_already, undefined
from gradscope.ops.predicates import broke
from gradscope.ops.shared import infinite_inputs, slope_overflow, value_overflow

_KEEP_EMPTY_ROWS = "torch.where({x}.isneginf().all({dim}, keepdim=True), 0.0, {x})"
_ROW_HAS_ITEMS = "~{x}.isneginf().all({dim}, keepdim=True)"
_KEPT = Cure(_KEEP_EMPTY_ROWS, _ROW_HAS_ITEMS, "0.0")
_KEPT_PAIR = Cure(condition="~({x}.isneginf() & {other}.isneginf())", harmless="0.0")
_BELOW_INF = Cure(condition="{x} < float('inf')", harmless="0.0")


_DISTANCE = "distance of {x} to the row's largest element"


def _row_is_masked(result: str) -> Holds:
    """-inf at this element, and the row's result is nan: no element of the row is larger.

    A row with +inf is NaN too; that is arithmetic with inf, not a mask.
    """

    def holds(values: Values) -> bool:
        return (
            values["self"] == -math.inf
            and math.isnan(values[result])
            and values.get("self.posinf", 0.0) == 0
        )

    return holds


def _row(result: str, kind: Callable[..., Edge], masked: str) -> tuple[Edge, Edge]:
    """The edges of a row of nothing but -inf, which `masked` words, and of one with +inf."""

    def has_infinity(values: Values) -> bool:
        return math.isnan(values[result]) and values["self.posinf"] > 0

    largest = "the row's largest element is inf, and inf - inf is NaN"
    return (
        kind(_row_is_masked(result), masked, _KEPT, cause="all-masked-softmax"),
        kind(has_infinity, largest, _BELOW_INF, cause="inf-arithmetic"),
    )


def _normalised(name: str) -> OpFact:
    return OpFact(
        name,
        *_row("output", undefined, "every element of the row is -inf: 0 / 0"),
        value_overflow("self", what=_DISTANCE),
    )


def _summed(name: str) -> OpFact:
    """The value over nothing but -inf is a true -inf; only the slope is 0 / 0."""
    return OpFact(
        name,
        value_overflow("self", what=_DISTANCE),
        *_row(
            "grad_input",
            infinite_already,
            "every element is -inf: the slope is exp(-inf - -inf), which is NaN",
        ),
    )


def _pairwise(name: str) -> OpFact:
    """The value of two -inf is a true -inf too."""
    return OpFact(
        name,
        value_overflow("self", "other", what="sum"),
        infinite_already(
            lambda values: values["self"] == values["other"] == -math.inf,
            "both sides are -inf: the slope is exp(-inf - -inf), which is NaN",
            _KEPT_PAIR,
            cause="all-masked-softmax",
        ),
        infinite_already(
            lambda values: values["self"] == values["other"] == math.inf,
            "both sides are inf: the slope is exp(inf - inf), which is NaN",
            FINITE,
            cause="inf-arithmetic",
        ),
    )


def _attention(name: str) -> OpFact:
    inputs = ("query", "key", "value")

    def masked(values: Values) -> bool:
        mask = values.get("attn_mask.neginf", values.get("attn_bias.neginf", 0.0))
        return math.isnan(values["output"]) and mask > 0 and broke(*inputs)(values)

    return OpFact(
        name,
        undefined(
            masked,
            "a query has no key left: every score of the row is -inf",
            Cure(guard="{x}.masked_fill({x}.isneginf().all(-1, keepdim=True), 0.0)"),
            argument="attn_mask",
            cause="all-masked-softmax",
        ),
        value_overflow(*inputs, what="product of queries and keys"),
        *infinite_inputs(*inputs, says="{x} is already inf: a weight of 0 times inf is NaN"),
        slope_overflow(*inputs, what="the product of values and gradients"),
    )


FACTS = (
    _normalised("_softmax"),
    _normalised("_log_softmax"),
    _normalised("_safe_softmax"),
    _summed("logsumexp"),
    _summed("logcumsumexp"),
    _pairwise("logaddexp"),
    _pairwise("logaddexp2"),
    *(
        _attention(f"_scaled_dot_product_{kernel}")
        for kernel in (
            "flash_attention_for_cpu",
            "flash_attention",
            "efficient_attention",
            "cudnn_attention",
            "fused_attention_overrideable",
            "attention_math",
        )
    ),
)
