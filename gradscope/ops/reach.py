"""Where ops are singular, and how near to such a point is too near without a guard.

The edges of the table say of values whether they break an op; these say how far they are from it.
"""

from functools import cache

from gradscope.dataclass import dataclass
from gradscope.ops.dtypes import Margin, eps_for, finfo
from gradscope.ops.edges import Nature
from gradscope.ops.predicates import points_of
from gradscope.ops.table import lookup


@dataclass(frozen=True, slots=True)
class Singularity:
    """The points of one operand (its name in the schema) at which value or slope is infinite.
    Where there is another operand `beside` it, only where that one is 0 as well."""

    argument: str
    points: tuple[float, ...]
    margin: Margin
    beside: str = ""


_ROOT = Singularity("self", (0.0,), Margin.ROOT)
_INVERSE = Singularity("self", (0.0,), Margin.DENOMINATOR)
# Of a pair, torch gives gradient 0 at the very origin: what breaks is near it.
_ANGLE = Singularity("self", (0.0,), Margin.DENOMINATOR, beside="other")


def singularity(op: str, exponent: float | None = None) -> Singularity | None:
    """Where the op is singular; None where it is nowhere, or nobody knows. `exponent` is that of
    `pow`: a power that is at least 1, and a whole one at least 0, is regular."""
    if op == "atan2":
        return _ANGLE
    if op != "pow":
        return _of_edges(op)
    if exponent is None or exponent >= 1 or exponent == 0:
        return None
    return _INVERSE if exponent < 0 else _ROOT


@cache
def _of_edges(op: str) -> Singularity | None:
    """The points of the first edge at which an op has a pole or an infinite slope."""
    fact = lookup(op)
    for edge in fact.edges if fact is not None else ():
        points = points_of(edge.holds, edge.argument)
        if points and edge.cure.guard and edge.nature in (Nature.POLE, Nature.INFINITE_SLOPE):
            # A logarithm's own margin is made to leave probabilities alone; one that has come down
            # to a divisor's margin is on its way to 0.
            margin = Margin.DENOMINATOR if edge.cure.margin is Margin.LOG else edge.cure.margin
            return Singularity(edge.argument, points, margin)
    return None


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
