"""Losses that run as one op."""

import math
from dataclasses import replace

from gradscope.ops.cures import FINITE, PROBABILITY, Cure, within
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import OpFact, Values, empty, overflow, removable, undefined
from gradscope.ops.predicates import (
    both,
    broke,
    equals,
    has_infinity,
    infinite,
    is_finite,
    overflows,
    slope_broke,
)
from gradscope.ops.shared import infinite_input, no_answer, slope_overflow, value_overflow

_MEAN = 1  # of at::Reduction


def _is_mean(values: Values) -> bool:
    return values.get("reduction", _MEAN) == _MEAN


def _is_nothing(values: Values) -> bool:
    """0 / 0 of finite log-probabilities: of the targets none counts."""
    finite = all(is_finite(values, name) for name in ("self", "weight"))
    return finite and math.isnan(values["output"])


_EMPTY = empty(both(_is_mean, equals("self.numel", 0)), "the mean over an empty batch is 0 / 0")


def _distance(name: str, what: str) -> OpFact:
    return OpFact(
        name,
        _EMPTY,
        value_overflow("self", "target", what=what),
        no_answer("self", both(has_infinity("self"), has_infinity("target")), "inf - inf is NaN"),
    )


def _likelihood(name: str) -> OpFact:
    return OpFact(
        name,
        _EMPTY,
        empty(
            both(_is_mean, _is_nothing),
            "every target is `ignore_index`: the mean over none of them is 0 / 0",
            stable="reduction='sum', divided by the number of targets clamped to at least 1",
        ),
        value_overflow("self", "weight", what="sum"),
    )


def _no_alignment(values: Values) -> bool:
    """The loss is inf; or -inf in its table of alignments is what the gradient is made from."""
    return math.isinf(values["output"]) and is_finite(values, "log_probs")


_NOT_LOGS = (
    "{x} are not log-probabilities (some are above 0): PyTorch's formula takes their exp, which"
    " leaves the dtype"
)


FACTS = (
    _distance("mse_loss", "square"),
    _distance("huber_loss", "distance"),
    _distance("smooth_l1_loss", "distance"),
    _distance("multi_margin_loss", "power of the margin"),
    _distance("multilabel_margin_loss_forward", "sum of margins"),
    _likelihood("nll_loss_forward"),
    _likelihood("nll_loss2d_forward"),
    OpFact(
        "binary_cross_entropy",
        _EMPTY,
        removable(
            lambda values: values["self"] in (0, 1) and bool(values["target.requires_grad"]),
            "the value clamps log to -100, but PyTorch's slope in the target is an unclamped"
            " log(1 - {x}) - log({x})",
            PROBABILITY,
            stable="torch.nn.functional.binary_cross_entropy_with_logits",
        ),
    ),
    OpFact(
        "binary_cross_entropy_with_logits",
        _EMPTY,
        no_answer(
            "self", infinite("self"), "{x} is already inf: (1 - target) * inf, or inf - inf, is NaN"
        ),
        value_overflow("self", "target", what="product with the target"),
        slope_overflow(
            "self", "target", what="the slope in the target is -{x}: the incoming gradient times it"
        ),
    ),
    OpFact(
        "soft_margin_loss",
        _EMPTY,
        overflow(
            overflows("self", "target", by=lambda x, y: math.exp(-x * y)),
            "exp(-target * {x})",
            within(Margin.EXPONENT),
            stable="torch.nn.functional.softplus(-target * {x}).mean()",
        ),
        overflow(
            broke("self", "target"),
            "exp(-target * {x})",
            Cure(guard="{x}.clamp(-{eps}, {eps})", margin=Margin.EXPONENT),
            stable="torch.nn.functional.softplus(-target * {x}).mean()",
        ),
    ),
    OpFact(
        "_ctc_loss",
        overflow(
            both(_no_alignment, lambda values: values["log_probs.max"] > 1),
            _NOT_LOGS,
            Cure(guard="{x}.log_softmax(-1)"),
            ending="",
            argument="log_probs",
        ),
        undefined(
            _no_alignment,
            "no alignment has a probability above 0 (a target longer than its input), and"
            " -log(0) is inf",
            argument="log_probs",
            cause="log-zero",
            stable="zero_infinity=True",
        ),
        infinite_input(
            "log_probs",
            has_infinity("log_probs"),
            "{x} holds -inf: the slope is inf - inf there",
            cure=replace(FINITE, guard="{x}.clamp_min(-{eps})", margin=Margin.EXPONENT),
        ),
        removable(
            slope_broke("log_probs"),
            _NOT_LOGS,
            Cure(guard="{x}.log_softmax(-1)"),
            argument="log_probs",
            cause="overflow",
        ),
    ),
)
