"""What ops do to values and gradients, in kinds: which choose, copy, bound, saturate ...

An op goes by the name of its aten op, without namespace, overload and in-place underscore, or by
that of its autograd node (`MaskedFillBackward0`). Each trait is measured by the tests, which run
the op. What torch tells of an op itself (views, random numbers) is asked where the program runs.
"""

from enum import Flag, auto
from functools import cache

from gradscope.ops.display import node_stem


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
    SHIFTS = auto()  # adds or subtracts; the second operand may be a number
    SUBTRACTS = auto()  # a number or tensor from another of its size: 0 where they are equal
    ADDS = auto()  # slope 1 or -1 towards each operand, whatever the others are
    ADDS_FIRST = auto()  # that towards the first one
    MULTIPLIES = auto()  # products of elements of two operands, or their sums
    DIVIDES = auto()  # by its operand, or a power of that: 0 where it is inf
    PRODUCT = auto()  # of all elements of one operand
    SUMS = auto()  # adds elements of one operand up
    GROWS_SLOWLY = auto()  # no faster than a power of the operands: what overflows it is large
    SOFTMAX = auto()  # a row of nothing but -inf has NaN in its value or its slope
    LOG_SUMS = auto()  # -inf of nothing but -inf, with a slope of NaN
    AVERAGES = auto()  # NaN of finite values where nothing is left to average
    SPREADS = auto()  # NaN of a single item
    FLAT_AT_ZERO = auto()  # slope 0 where its operand is 0, and not beside that
    PIECEWISE_LINEAR = auto()  # a slope that is constant over intervals: its own derivative is 0
    HANGS_ON_MODES = auto()  # torch takes another formula for it under any dispatch mode
    SIGN_HANGS_ON_MODES = auto()  # so it does without a dimension: zeros get another sign
    FILL_HANGS_ON_MODES = auto()  # so it does for the gradient of a tensor that it fills in


# Each op once, with all that it has.
_ROWS: tuple[tuple[str, Trait], ...] = (
    ("where", Trait.CHOOSES | Trait.MASKS | Trait.FILLS),
    ("masked_fill", Trait.CHOOSES | Trait.MASKS | Trait.FILLS | Trait.FILL_HANGS_ON_MODES),
    ("masked_select masked_scatter", Trait.CHOOSES | Trait.MASKS),
    ("nan_to_num", Trait.CHOOSES | Trait.BY_VALUE | Trait.FILLS | Trait.CLEANS),
    ("threshold", Trait.CHOOSES | Trait.BY_VALUE | Trait.FILLS | Trait.BOUNDS | Trait.RECTIFIES),
    ("minimum maximum", Trait.CHOOSES | Trait.BY_VALUE | Trait.FILLS | Trait.BOUNDS),
    ("nansum", Trait.CHOOSES | Trait.BY_VALUE | Trait.CLEANS),
    (
        "relu",
        Trait.CHOOSES | Trait.BY_VALUE | Trait.FINITE_AS_OPERAND | Trait.BOUNDS | Trait.RECTIFIES,
    ),
    ("clamp clamp_min clamp_max", Trait.CHOOSES | Trait.BY_VALUE | Trait.CLAMPS | Trait.BOUNDS),
    ("hardtanh", Trait.CHOOSES | Trait.BY_VALUE | Trait.BOUNDS | Trait.RECTIFIES),
    ("max min", Trait.CHOOSES | Trait.BY_VALUE | Trait.SIGN_HANGS_ON_MODES),
    (
        "median nanmedian",
        Trait.CHOOSES | Trait.BY_VALUE | Trait.AVERAGES | Trait.SIGN_HANGS_ON_MODES,
    ),
    (
        "fmin fmax amax amin kthvalue topk cummax cummin max_pool2d_with_indices",
        Trait.CHOOSES | Trait.BY_VALUE,
    ),
    ("copy fill", Trait.CHOOSES | Trait.FILLS | Trait.WRITES | Trait.REPLACES),
    ("index_put index_fill scatter", Trait.CHOOSES | Trait.FILLS | Trait.WRITES),
    ("zero", Trait.CHOOSES | Trait.WRITES | Trait.REPLACES),
    ("select_scatter slice_scatter diagonal_scatter", Trait.CHOOSES | Trait.WRITES),
    ("index_select", Trait.CHOOSES | Trait.FINITE_AS_OPERAND),
    ("threshold_backward", Trait.CHOOSES | Trait.FINITE_AS_OPERAND | Trait.PIECEWISE_LINEAR),
    ("leaky_relu_backward hardtanh_backward", Trait.PIECEWISE_LINEAR),
    ("index gather", Trait.CHOOSES | Trait.KEEPS_ZERO),
    ("nll_loss_forward nll_loss2d_forward", Trait.CHOOSES | Trait.GROWS_SLOWLY | Trait.AVERAGES),
    (
        "take embedding slice select split split_with_sizes unsafe_split unbind diagonal triu "
        "tril _pack_padded_sequence native_dropout",
        Trait.CHOOSES,
    ),
    ("sort", Trait.BY_VALUE),
    ("full full_like new_full scalar_tensor constant_pad_nd", Trait.FILLS),
    ("clone _unsafe_view", Trait.COPIES | Trait.FINITE_AS_OPERAND),
    ("_to_copy lift_fresh set", Trait.COPIES),
    ("cat stack", Trait.JOINS),
    ("select_backward slice_backward", Trait.FINITE_AS_OPERAND),
    ("bernoulli", Trait.FINITE | Trait.DRAWS),
    ("rand rand_like randn randn_like zeros zeros_like ones ones_like eye", Trait.FINITE),
    ("hardswish", Trait.RECTIFIES | Trait.GROWS_SLOWLY),
    ("_softmax", Trait.SATURATES | Trait.POSITIVE | Trait.SOFTMAX),
    ("sigmoid softplus", Trait.SATURATES | Trait.POSITIVE),
    ("gelu elu", Trait.SATURATES | Trait.GROWS_SLOWLY),
    ("tanh erf silu mish log_sigmoid_forward", Trait.SATURATES),
    ("normal poisson cauchy exponential", Trait.DRAWS),
    ("round", Trait.STEPS | Trait.GROWS_SLOWLY),
    ("sign floor ceil trunc heaviside", Trait.STEPS),
    ("exp exp2", Trait.POSITIVE),
    ("pow linalg_vector_norm", Trait.KEEPS_ZERO | Trait.GROWS_SLOWLY | Trait.FLAT_AT_ZERO),
    ("mean", Trait.KEEPS_ZERO | Trait.SUMS | Trait.GROWS_SLOWLY | Trait.AVERAGES),
    ("sum cumsum", Trait.KEEPS_ZERO | Trait.SUMS | Trait.GROWS_SLOWLY),
    ("neg", Trait.KEEPS_ZERO | Trait.GROWS_SLOWLY),
    ("abs", Trait.KEEPS_ZERO | Trait.GROWS_SLOWLY | Trait.FLAT_AT_ZERO),
    ("sqrt", Trait.KEEPS_ZERO),
    ("mul", Trait.MULTIPLIES | Trait.GROWS_SLOWLY),
    ("sub", Trait.SHIFTS | Trait.SUBTRACTS | Trait.ADDS | Trait.GROWS_SLOWLY),
    ("add", Trait.SHIFTS | Trait.ADDS | Trait.GROWS_SLOWLY),
    ("rsub", Trait.SUBTRACTS | Trait.ADDS),
    ("expand", Trait.ADDS),
    ("addmv", Trait.ADDS_FIRST),
    ("mm bmm dot mv convolution", Trait.MULTIPLIES | Trait.GROWS_SLOWLY),
    ("addmm baddbmm", Trait.MULTIPLIES | Trait.ADDS_FIRST | Trait.GROWS_SLOWLY),
    ("matmul linear", Trait.MULTIPLIES),
    ("div reciprocal rsqrt", Trait.DIVIDES),
    ("prod cumprod", Trait.PRODUCT | Trait.HANGS_ON_MODES),
    ("linalg_lstsq linalg_pinv", Trait.HANGS_ON_MODES),
    ("_scaled_dot_product_attention", Trait.GROWS_SLOWLY | Trait.SOFTMAX),
    (
        "mse_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits",
        Trait.GROWS_SLOWLY | Trait.AVERAGES,
    ),
    ("addcmul addcdiv lerp rad2deg sinc", Trait.GROWS_SLOWLY),
    ("_log_softmax _masked_softmax", Trait.SOFTMAX),
    ("logsumexp logcumsumexp logaddexp logaddexp2", Trait.SOFTMAX | Trait.LOG_SUMS),
    ("std var std_mean var_mean", Trait.AVERAGES | Trait.SPREADS | Trait.GROWS_SLOWLY),
    ("native_layer_norm native_group_norm native_batch_norm", Trait.GROWS_SLOWLY),
    ("soft_margin_loss binary_cross_entropy", Trait.AVERAGES),
)
_WRITES = {"CopySlices": "copy", "CopyBackwards": "copy"}  # nodes that autograd puts in by itself
# The kernels of one function: which of them runs hangs on the device and the dtype.
_ATTENTION = "scaleddotproduct"


@cache
def key(name: str) -> str:
    """An op and its autograd node under one name: `masked_fill`, `MaskedFillBackward0`. The class
    of a custom function (`Clamp`) is neither."""
    stem = _WRITES.get(name) or node_stem(name).lower()
    op = (stem or name.removesuffix("_forward")).replace("_", "")
    return _ATTENTION if op.startswith(_ATTENTION) else op


TRAITS = {op: traits for ops, traits in _ROWS for op in ops.split()}
_BY_KEY = {key(op): traits for op, traits in TRAITS.items()}


def has(name: str, traits: Trait) -> bool:
    """Whether an op, or an autograd node, has one of the traits."""
    return bool(_BY_KEY.get(key(name), Trait.NONE) & traits)


def discards(name: str) -> bool:
    """Whether it can leave elements of its operand out, which get gradient exactly 0; a sort hands
    on all of them, each where its value puts it."""
    return has(name, Trait.CHOOSES | Trait.BY_VALUE)
