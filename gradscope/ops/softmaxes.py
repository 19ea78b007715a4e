"""Softmax, its logarithm, and what normalises by a sum of exponentials."""

from __future__ import annotations

import math

from gradscope.ops.cures import FINITE, Cure
from gradscope.ops.edges import Edge, Holds, Nature, OpFact, Values
from gradscope.ops.predicates import broke, has_infinity
from gradscope.ops.shared import infinite_input, slope_overflow, value_overflow

_KEEP_EMPTY_ROWS = "torch.where({x}.isneginf().all({dim}, keepdim=True), 0.0, {x})"
_ROW_HAS_ITEMS = "~{x}.isneginf().all({dim}, keepdim=True)"


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


def _masked_row(result: str, nature: Nature, says: str) -> Edge:
    return Edge(
        "self",
        nature,
        _row_is_masked(result),
        says,
        "all-masked-softmax",
        slope="nan",
        cure=Cure(guard=_KEEP_EMPTY_ROWS, condition=_ROW_HAS_ITEMS, harmless="0.0"),
    )


def _positive_infinity(result: str, nature: Nature) -> Edge:
    def holds(values: Values) -> bool:
        return math.isnan(values[result]) and values["self.posinf"] > 0

    return Edge(
        "self",
        nature,
        holds,
        "the row's largest element is inf, and inf - inf is NaN",
        "inf-arithmetic",
        slope="nan",
        cure=Cure(condition="{x} < float('inf')", harmless="0.0"),
    )


def _normalised(name: str, *spelled: str) -> OpFact:
    return OpFact(
        name,
        (
            _masked_row("output", Nature.DOMAIN, "every element of the row is -inf: 0 / 0"),
            _positive_infinity("output", Nature.DOMAIN),
            value_overflow("self", what=_DISTANCE),
        ),
        spelled,
    )


def _summed(name: str, *spelled: str) -> OpFact:
    """The value over nothing but -inf is a true -inf; only the slope is 0 / 0."""
    return OpFact(
        name,
        (
            value_overflow("self", what=_DISTANCE),
            _masked_row(
                "grad_input",
                Nature.INFINITE_INPUT,
                "every element is -inf: the slope is exp(-inf - -inf), which is NaN",
            ),
            _positive_infinity("grad_input", Nature.INFINITE_INPUT),
        ),
        spelled,
    )


def _same_infinity(values: Values) -> bool:
    return math.isinf(values["self"]) and values["self"] == values["other"]


def _pairwise(name: str) -> OpFact:
    return OpFact(
        name,
        (
            value_overflow("self", "other", what="sum"),
            Edge(
                "self",
                Nature.INFINITE_INPUT,
                _same_infinity,
                "both sides are the same infinity: the slope is exp(inf - inf), which is NaN",
                "all-masked-softmax",
                slope="nan",
                cure=FINITE,
            ),
        ),
        (f"torch.{name}",),
    )


def _attention(name: str) -> OpFact:
    inputs = ("query", "key", "value")
    infinite = [
        infinite_input(
            argument, has_infinity(argument), "{x} is already inf: a weight of 0 times inf is NaN"
        )
        for argument in inputs
    ]

    def masked(values: Values) -> bool:
        mask = values.get("attn_mask.neginf", values.get("attn_bias.neginf", 0.0))
        return math.isnan(values["output"]) and mask > 0 and broke(*inputs)(values)

    return OpFact(
        name,
        (
            Edge(
                "attn_mask",
                Nature.DOMAIN,
                masked,
                "a query has no key left: every score of the row is -inf",
                "all-masked-softmax",
                slope="nan",
                cure=Cure(guard="{x}.masked_fill({x}.isneginf().all(-1, keepdim=True), 0.0)"),
            ),
            value_overflow(*inputs, what="product of queries and keys"),
            *infinite,
            slope_overflow(*inputs, what="the product of values and gradients", slope="nan"),
        ),
        ("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"),
    )


FACTS = (
    _normalised("_softmax", "torch.softmax", "Tensor.softmax", "torch.nn.Softmax"),
    _normalised("_log_softmax", "torch.log_softmax", "torch.nn.functional.cross_entropy"),
    _normalised("_safe_softmax", "torch.nn.functional.scaled_dot_product_attention"),
    _summed("logsumexp", "torch.logsumexp", "Tensor.logsumexp"),
    _summed("logcumsumexp", "torch.logcumsumexp"),
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
