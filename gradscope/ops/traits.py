"""What ops do to values and gradients, in kinds: which choose, copy, bound, saturate ...

An op goes by the name of its aten op, without namespace, overload and in-place underscore, or by
that of its autograd node (`MaskedFillBackward0`). Each trait is measured by the tests, which run
the op. What torch tells of an op itself (views, random numbers) is asked where the program runs.
"""

from __future__ import annotations

from enum import Flag, auto
from functools import cache

from gradscope.ops.names import node_stem


class Trait(Flag):
    NONE = 0
    CHOOSES = auto()  # gives gradient exactly 0 to the elements of its operand that it leaves out
    MASKS = auto()  # chooses by a condition that it is given
    BY_VALUE = auto()  # which elements it takes, and where to, hangs on their values
    FILLS = auto()  # puts a value that it is given in the place of elements, as it is
    WRITES = auto()  # puts other values in at places that it is given, or at all
    REPLACES = auto()  # nothing remains of what it overwrites
    COPIES = auto()  # the operand's elements, all of them, in other memory or another dtype
    CLEANS = auto()  # finite of NaN: that is what it is for
    JOINS = auto()  # the elements of several operands, all of them
    FINITE_AS_OPERAND = auto()  # hands on elements of its first operand, or 0
    FINITE = auto()  # whatever it is given, in every dtype
    CLAMPS = auto()  # keeps values between two bounds that it is given
    BOUNDS = auto()  # keeps values inside of a range that is closed: the bound itself comes out
    RECTIFIES = auto()  # slope exactly 0 below some number that is not far out
    SATURATES = auto()  # slope 0 far out, by rounding
    DRAWS = auto()  # draws at random, with slope 0 towards what it is given
    STEPS = auto()  # slope 0 everywhere
    POSITIVE = auto()  # greater than 0 for every finite operand: a 0 was flushed
    KEEPS_ZERO = auto()  # of operands that are not negative, 0 only where they are
    SQUARES = auto()  # squares on the way: 0 for an operand that is too small for that
    SHIFTS = auto()  # adds or subtracts; the second operand may be a number
    SUBTRACTS = auto()  # a number or tensor from another of its size: 0 where they are equal
    MULTIPLIES = auto()  # products of elements of two operands, or their sums
    DIVIDES = auto()  # by its operand, or a power of that: 0 where it is inf
    PRODUCT = auto()  # of all elements of one operand
    SUMS = auto()  # adds elements of one operand up
    GROWS_SLOWLY = auto()  # no faster than a power of the operands: what overflows it is large
    SOFTMAX = auto()  # a row of nothing but -inf has NaN in its value or its slope
    AVERAGES = auto()  # NaN of finite values where nothing is left to average
    SPREADS = auto()  # NaN of a single item


_OPS: dict[Trait, str] = {
    Trait.CHOOSES: "where masked_fill masked_select masked_scatter index index_put index_fill"
    " index_select gather take scatter embedding slice select split split_with_sizes unsafe_split"
    " unbind diagonal triu tril copy fill zero select_scatter slice_scatter diagonal_scatter"
    " _pack_padded_sequence native_dropout nll_loss_forward nll_loss2d_forward"
    " clamp clamp_min clamp_max minimum maximum fmin fmax max min amax amin median nanmedian"
    " kthvalue topk cummax cummin nan_to_num nansum relu threshold hardtanh"
    " max_pool2d_with_indices threshold_backward",
    Trait.MASKS: "where masked_fill masked_select masked_scatter",
    Trait.BY_VALUE: "clamp clamp_min clamp_max minimum maximum fmin fmax max min amax amin median"
    " nanmedian kthvalue topk sort cummax cummin nan_to_num nansum relu threshold hardtanh"
    " max_pool2d_with_indices",
    Trait.FILLS: "full full_like new_full scalar_tensor fill where masked_fill index_fill index_put"
    " scatter constant_pad_nd copy maximum minimum nan_to_num threshold",
    Trait.WRITES: "copy fill zero index_fill index_put scatter select_scatter slice_scatter"
    " diagonal_scatter",
    Trait.REPLACES: "copy fill zero",
    Trait.COPIES: "clone _to_copy _unsafe_view lift_fresh set",
    Trait.CLEANS: "nansum nan_to_num",
    Trait.JOINS: "cat stack",
    Trait.FINITE_AS_OPERAND: "_unsafe_view clone relu threshold_backward select_backward"
    " slice_backward index_select",
    Trait.FINITE: "bernoulli rand rand_like randn randn_like zeros zeros_like ones ones_like eye",
    Trait.CLAMPS: "clamp clamp_min clamp_max",
    Trait.BOUNDS: "clamp clamp_min clamp_max relu hardtanh threshold maximum minimum",
    Trait.RECTIFIES: "relu threshold hardtanh hardswish",
    Trait.SATURATES: "sigmoid tanh _softmax erf gelu silu softplus elu mish log_sigmoid_forward",
    Trait.DRAWS: "normal bernoulli poisson cauchy exponential",
    Trait.STEPS: "sign round floor ceil trunc heaviside",
    Trait.POSITIVE: "exp exp2 softplus sigmoid _softmax",
    Trait.KEEPS_ZERO: "sum mean sqrt neg abs pow index gather cumsum linalg_vector_norm",
    Trait.SQUARES: "pow mul linalg_vector_norm",
    Trait.SHIFTS: "add sub",
    Trait.SUBTRACTS: "sub rsub",
    Trait.MULTIPLIES: "mul mm bmm dot mv addmm baddbmm convolution matmul linear",
    Trait.DIVIDES: "div reciprocal rsqrt",
    Trait.PRODUCT: "prod cumprod",
    Trait.SUMS: "sum mean cumsum",
    Trait.GROWS_SLOWLY: "mul mm addmm bmm baddbmm convolution add sub sum mean pow mse_loss mv dot"
    " smooth_l1_loss huber_loss addcmul addcdiv linalg_vector_norm abs neg nll_loss_forward"
    " nll_loss2d_forward binary_cross_entropy_with_logits cumsum"
    " _scaled_dot_product_attention lerp round rad2deg sinc elu gelu hardswish",
    Trait.SOFTMAX: "_softmax _log_softmax logsumexp logcumsumexp _masked_softmax"
    " _scaled_dot_product_attention",
    Trait.AVERAGES: "mean mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy"
    " binary_cross_entropy_with_logits nll_loss_forward nll_loss2d_forward median nanmedian"
    " std var std_mean var_mean",
    Trait.SPREADS: "std var std_mean var_mean",
}
_WRITES = {"CopySlices": "copy", "CopyBackwards": "copy"}  # nodes that autograd puts in by itself
# The kernels of one function: which of them runs hangs on the device and the dtype.
_ATTENTION = "scaleddotproduct"


def key(name: str) -> str:
    """An op and its autograd node under one name: `masked_fill`, `MaskedFillBackward0`. The class
    of a custom function (`Clamp`) is neither."""
    stem = _WRITES.get(name) or node_stem(name).lower()
    op = (stem or name.removesuffix("_forward")).replace("_", "")
    return _ATTENTION if op.startswith(_ATTENTION) else op


@cache
def traits_of(name: str) -> Trait:
    found = Trait.NONE
    for trait, ops in _OPS.items():
        if key(name) in map(key, ops.split()):
            found |= trait
    return found


def has(name: str, traits: Trait) -> bool:
    """Whether an op, or an autograd node, has one of the traits."""
    return bool(traits_of(name) & traits)


def discards(name: str) -> bool:
    """Whether it can leave elements of its operand out, which get gradient exactly 0; a sort hands
    on all of them, each where its value puts it."""
    return has(name, Trait.CHOOSES | Trait.BY_VALUE)
