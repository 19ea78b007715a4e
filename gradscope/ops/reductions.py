"""Reductions: sums, products, spreads and norms."""

from gradscope.ops.cures import away
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import OpFact, Values, empty, slope_too_large, too_steep
from gradscope.ops.predicates import both, equals, has_infinity, magnitude, slope_broke
from gradscope.ops.shared import infinite_inputs, no_answer, slope_overflow, value_overflow

_OTHERS = "the product of the other elements in the slope"


_empty = equals("self.numel", 0)


def _too_few_items(values: Values) -> bool:
    """The spread of n items divides by n - correction."""
    items = values["self.numel"] / max(values["output.numel"], 1)
    return items <= values.get("correction", 1.0)


_INF_MINUS_INF = no_answer(
    "self",
    lambda values: values["self.posinf"] > 0 and values["self.neginf"] > 0,
    "the sum meets inf and -inf",
)


def _sum(name: str) -> OpFact:
    return OpFact(name, _INF_MINUS_INF, value_overflow("self", what="sum"))


def _mean(name: str) -> OpFact:
    nothing = empty(
        _empty, f"the {name} of no elements is 0 / 0", stable="{x}.sum() / max({x}.numel(), 1)"
    )
    return OpFact(name, nothing, _INF_MINUS_INF, value_overflow("self", what="sum"))


def _product(name: str) -> OpFact:
    return OpFact(
        name, value_overflow("self", what="product"), slope_overflow("self", what=_OTHERS)
    )


def _spread(name: str) -> OpFact:
    return OpFact(
        name,
        empty(
            _too_few_items,
            f"the {name} of one item divides by 0",
            stable=f"torch.{name}({{x}}, correction=0)",
        ),
        no_answer("self", has_infinity("self"), "the distance of inf from the mean is inf - inf"),
        value_overflow("self", what="sum of squares"),
        slope_overflow("self", what="the distance from the mean in the slope"),
    )


def _norm(name: str, *arguments: str) -> OpFact:
    """At 0 PyTorch gives the subgradient 0. What breaks are the powers inside: x^(p - 1)."""
    first = arguments[0]
    return OpFact(
        name,
        value_overflow(*arguments, what="sum of powers"),
        *infinite_inputs(*arguments, says="slope is {x} over the norm: inf / inf"),
        too_steep(
            # A nonzero element whose square falls below the smallest number of float32.
            both(slope_broke(*arguments), lambda values: 0 < abs(values[first]) < 1e-19),
            "a power of {x} in PyTorch's formula",
            away(Margin.ROOT, tiny=True),
            argument=first,
            stable="torch.sqrt({x}.square().sum() + {eps})",
        ),
        slope_overflow(*arguments, what="a power of {x} in PyTorch's formula"),
    )


def _scattered(name: str, source: str) -> OpFact:
    """Reduces `source` into `self` by index; a product is the only one whose slope can break."""
    return OpFact(
        name,
        value_overflow(source, "self", what="reduction"),
        slope_overflow(source, "self", what=_OTHERS),
    )


FACTS = (
    _sum("sum"),
    _sum("nansum"),
    _sum("cumsum"),
    _sum("trace"),
    _mean("mean"),
    OpFact("median", empty(_empty, "the median of no elements is NaN")),
    _product("prod"),
    _product("cumprod"),
    _spread("var"),
    _spread("std"),
    _spread("var_mean"),
    _spread("std_mean"),
    _norm("linalg_vector_norm", "self"),
    _norm("norm", "self"),
    _norm("dist", "self", "other"),
    _norm("_cdist_forward", "x1", "x2"),
    _norm("_euclidean_dist", "x1", "x2"),
    _norm("_pdist_forward", "self"),
    OpFact(
        "renorm",
        value_overflow("self", what="norm"),
        slope_too_large(
            both(slope_broke("self"), lambda values: magnitude(values, "self") > 1),
            "the norm in the slope",
            wider=True,
        ),
    ),
    *(
        _scattered(name, "source")
        for name in ("index_add", "index_reduce", "scatter_add", "index_put")
    ),
    _scattered("scatter_reduce", "src"),
    _scattered("segment_reduce", "data"),
)
