"""Where ops are singular, and how near to such a point is too near without a guard.

The edges of the table say of values whether they break an op; these say how far they are from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.ops.dtypes import Margin, eps_for, finfo


@dataclass(frozen=True, slots=True)
class Singularity:
    """The points of one operand (its name in the schema) at which value or slope is infinite.
    Where there is another operand `beside` it, only where that one is 0 as well."""

    argument: str
    points: tuple[float, ...]
    margin: Margin
    beside: str = ""


def _at(argument: str, margin: Margin, *points: float, beside: str = "") -> Singularity:
    return Singularity(argument, points, margin, beside)


# A logarithm's own margin is made to leave probabilities alone; one that has come down to a
# divisor's margin is on its way to 0.
_POINTS: dict[str, Singularity] = {
    "sqrt": _at("self", Margin.ROOT, 0.0),
    "rsqrt": _at("self", Margin.DENOMINATOR, 0.0),
    "log": _at("self", Margin.DENOMINATOR, 0.0),
    "log2": _at("self", Margin.DENOMINATOR, 0.0),
    "log10": _at("self", Margin.DENOMINATOR, 0.0),
    "log1p": _at("self", Margin.ENDPOINT, -1.0),
    "xlogy": _at("other", Margin.DENOMINATOR, 0.0),
    "div": _at("other", Margin.DENOMINATOR, 0.0),
    "reciprocal": _at("self", Margin.DENOMINATOR, 0.0),
    "acos": _at("self", Margin.ENDPOINT, -1.0, 1.0),
    "asin": _at("self", Margin.ENDPOINT, -1.0, 1.0),
    "atanh": _at("self", Margin.ENDPOINT, -1.0, 1.0),
    "erfinv": _at("self", Margin.ENDPOINT, -1.0, 1.0),
    "acosh": _at("self", Margin.ENDPOINT, 1.0),
    "special_ndtri": _at("self", Margin.ENDPOINT, 0.0, 1.0),
    "logit": _at("self", Margin.ENDPOINT, 0.0, 1.0),
    "lgamma": _at("self", Margin.DENOMINATOR, 0.0),
    "digamma": _at("self", Margin.DENOMINATOR, 0.0),
    "atan2": _at("self", Margin.DENOMINATOR, 0.0, beside="other"),
}
_ROOT = _at("self", Margin.ROOT, 0.0)
_INVERSE = _at("self", Margin.DENOMINATOR, 0.0)


def singularity(op: str, exponent: float | None = None) -> Singularity | None:
    """Where the op is singular; None where it is nowhere, or nobody knows. `exponent` is that of
    `pow`: a power that is at least 1, and a whole one at least 0, is regular."""
    if op != "pow":
        return _POINTS.get(op)
    if exponent is None or exponent >= 1 or exponent == 0:
        return None
    return _INVERSE if exponent < 0 else _ROOT


def reach_of_matrix(dtype: str, order: int) -> float:
    """The relative distance within which rounding alone can make a matrix singular, or two of its
    eigenvalues equal: the tolerance of `torch.linalg.matrix_rank`."""
    return order * finfo(dtype).eps


def reach(dtype: str, margin: Margin, *, difference: bool) -> float:
    """The distance within which an operand is too near: that at which a guard would hold it.

    The `difference` of two numbers next to 1 is 0 or at least the dtype's eps, so that a few of
    these steps are near too.
    """
    within = eps_for(dtype, margin)
    return max(within, 2 * finfo(dtype).eps) if difference else within
