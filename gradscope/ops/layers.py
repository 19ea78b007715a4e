"""Products of matrices, convolutions, normalisation, pooling and transforms."""

import math

from gradscope.ops.cures import Cure
from gradscope.ops.edges import Edge, Holds, OpFact, Values, overflow, pole, too_steep, undefined
from gradscope.ops.predicates import both, broke, has_infinity, magnitude, slope_broke
from gradscope.ops.shared import infinite_inputs, no_answer, slope_overflow, value_overflow


def _meets_infinity(argument: str, *names: str) -> Holds:
    """The result is nan, `argument` holds inf, and none of the operands holds nan."""
    return lambda values: (
        math.isnan(values["output"])
        and has_infinity(argument)(values)
        and not any(values.get(f"{name}.nan", 0.0) for name in names)
    )


def _product(name: str, first: str, second: str, third: str = "") -> OpFact:
    """A sum of products of elements, with `third` added."""
    names = (first, second, third) if third else (first, second)
    return OpFact(
        name,
        value_overflow(*names, what="sum of products"),
        *(
            no_answer(
                argument,
                _meets_infinity(argument, *names),
                "{x} is already inf: its products meet 0 * inf or inf - inf",
            )
            for argument in (first, second)
        ),
        *infinite_inputs(
            first,
            second,
            says="{x} is already inf: its products with the gradient meet 0 * inf or inf - inf",
        ),
        slope_overflow(*names, what="the sum of products in the slope"),
    )


def _variance_is_negative(values: Values) -> bool:
    return not values.get("training", 0.0) and values["running_var.min"] + values["eps"] <= 0


def _divides_by_no_variance(values: Values) -> bool:
    """eps is 0 (or below what the dtype resolves), and a group of equal elements has variance 0."""
    return values["eps"] < values.get("dtype.tiny", 0.0) or values["eps"] == 0


def _normalisation(name: str, running: bool = False) -> OpFact:
    edges = []
    if running:
        edges.append(
            undefined(
                _variance_is_negative,
                "the running variance plus eps is not positive, and its root is NaN",
                Cure(guard="{x}.clamp_min(0)"),
                argument="running_var",
            )
        )
    edges += [
        overflow(
            both(broke("input"), lambda values: magnitude(values, "input") > 1e9),
            "the variance",
            argument="input",
            wider=True,
        ),
        pole(
            both(broke("input"), _divides_by_no_variance),
            "equal elements have variance 0, and eps does not keep the division from 0",
            argument="input",
            cause="zero-division",
            stable="eps=1e-5",
        ),
        slope_overflow("input", what="the power of the deviation in the slope"),
    ]
    return OpFact(name, *edges)


def _linear(name: str, argument: str) -> OpFact:
    """Weighted sums of elements: only overflow breaks them."""
    return OpFact(
        name,
        value_overflow(argument, what="sum of elements"),
        no_answer(
            argument,
            _meets_infinity(argument, argument),
            "{x} is already inf: a weight of 0 times inf, or inf - inf, is NaN",
        ),
        slope_overflow(argument, what="a sum of products in the slope"),
    )


def _complex(name: str) -> OpFact:
    """The slope of |z| is z / |z|; PyTorch squares the parts on the way."""

    def broke_at(tiny: bool) -> Edge:
        return too_steep(
            both(slope_broke("self"), lambda values: (magnitude(values, "self") < 1) is tiny),
            "PyTorch's formula squares the parts of {x}, which leaves the dtype; the true slope is"
            " finite",
            ending="",
            cause="singular-derivative" if tiny else "overflow",
            wider=True,
        )

    too_large = overflow(broke("self"), "the modulus, or its reciprocal,", wider=True)
    infinite = infinite_inputs("self", says="slope is {x} over its modulus: inf / inf")
    return OpFact(name, too_large, *infinite, broke_at(True), broke_at(False))


_POOLS = ("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
_UPSAMPLES = (
    *(f"upsample_{kind}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    *(f"_upsample_{kind}2d_aa" for kind in ("bilinear", "bicubic")),
)

FACTS = (
    _product("mm", "self", "mat2"),
    _product("bmm", "self", "mat2"),
    _product("addmm", "mat1", "mat2", third="self"),
    _product("baddbmm", "batch1", "batch2", third="self"),
    _product("addbmm", "batch1", "batch2", third="self"),
    _product("mv", "self", "vec"),
    _product("addmv", "mat", "vec", third="self"),
    _product("addr", "vec1", "vec2", third="self"),
    _product("dot", "self", "tensor"),
    _product("vdot", "self", "other"),
    _product("linear", "input", "weight", third="bias"),
    _product("linalg_cross", "self", "other"),
    _product("_trilinear", "i1", "i2", third="i3"),
    _product("convolution", "input", "weight", third="bias"),
    _product("_prelu_kernel", "self", "weight"),
    _product("polar", "abs", "angle"),
    _normalisation("native_layer_norm"),
    _normalisation("native_group_norm"),
    _normalisation("_fused_rms_norm"),
    *(
        _normalisation(name, running=True)
        for name in (
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "_batch_norm_with_update",
            "_batch_norm_no_update",
            "cudnn_batch_norm",
        )
    ),
    *(_linear(name, "self") for name in (*_POOLS, *_UPSAMPLES)),
    _linear("grid_sampler_2d", "input"),
    _linear("grid_sampler_3d", "input"),
    _linear("_embedding_bag", "weight"),
    *(_linear(name, "self") for name in ("_fft_r2c", "_fft_c2c", "_fft_c2r")),
    *(
        _linear(name, "grad_output")
        for name in ("_softmax_backward_data", "_log_softmax_backward_data")
    ),
    _linear("native_dropout_backward", "grad_output"),
    _linear("_unsafe_masked_index_put_accumulate", "self"),
    _complex("abs"),
    _complex("angle"),
    _complex("sgn"),
)
