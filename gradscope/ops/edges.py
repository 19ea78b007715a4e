"""The vocabulary of the op table."""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from gradscope.dataclass import dataclass
from gradscope.facts import Event, Operand, Phase
from gradscope.ops.cures import NO_CURE, Cure
from gradscope.ops.dtypes import finfo

Values = Mapping[str, float]
Holds = Callable[[Values], bool]


class Nature(StrEnum):
    """Why an op breaks at an edge. The first four break the value, the others only the slope."""

    POLE = "pole"  # 1/0, log(0): the value itself is infinite
    DOMAIN = "domain"  # log(-1): the value is undefined
    OVERFLOW = "overflow"  # the true value is finite, the dtype's largest number is smaller
    EMPTY = "empty"  # a reduction over nothing, a spread over one item
    INFINITE_SLOPE = "infinite-slope"  # sqrt at 0
    UNDEFINED_SLOPE = "undefined-slope"  # the one-sided slopes differ
    REMOVABLE = "removable"  # the true slope is finite; PyTorch's formula gives 0 * inf there
    DEGENERATE = "degenerate"  # repeated or zero singular values, eigenvalues, pivots
    SLOPE_OVERFLOW = "slope-overflow"  # the slope leaves the dtype's range
    INFINITE_INPUT = "infinite-input"  # the operand is already inf and the value hides it

    @property
    def slope(self) -> float:
        """What the backward formula gives there: inf, which stands for both signs, or NaN."""
        infinite = (Nature.POLE, Nature.OVERFLOW, Nature.INFINITE_SLOPE, Nature.SLOPE_OVERFLOW)
        return math.inf if self in infinite else math.nan


@dataclass(frozen=True, slots=True)
class Edge:
    """A place where the value or the slope of an op is singular.

    `holds` takes the operands' values at one element (schema name -> float) and tells whether they
    lie on this edge; further keys that it may ask for are those of `operands`. `says` tells it in
    words ("slope is inf where {x} is 0"): `what`, and its `ending`. `argument` is the operand's
    name in the aten schema, `cause` the name of the rule that explains a value that breaks here,
    `cure` what to do to the operand, `stable` another form of the whole expression, in the
    templates of `Cure`; `wider`: the same op does not break in a wider dtype.
    """

    holds: Holds
    what: str
    cure: Cure = NO_CURE
    argument: str = "self"
    nature: Nature = Nature.POLE
    cause: str = ""
    stable: str = ""
    wider: bool = False
    ending: str = ""

    @property
    def says(self) -> str:
        return f"{self.what}{self.ending}"

    @property
    def breaks_value(self) -> bool:
        return self.nature in (Nature.POLE, Nature.DOMAIN, Nature.OVERFLOW, Nature.EMPTY)


_LEAVES = " leaves the dtype"
_CLOSE = f"{_LEAVES} where {{x}} is this close to 0"

# One for each nature, with the cause that most edges of it have.
pole = partial(Edge, nature=Nature.POLE, cause="domain-error")
undefined = partial(Edge, nature=Nature.DOMAIN, cause="domain-error")
overflow = partial(Edge, nature=Nature.OVERFLOW, cause="overflow", ending=_LEAVES)
empty = partial(Edge, nature=Nature.EMPTY, cause="empty-reduction")
steep = partial(Edge, nature=Nature.INFINITE_SLOPE, cause="singular-derivative")
no_slope = partial(Edge, nature=Nature.UNDEFINED_SLOPE, cause="singular-derivative")
removable = partial(Edge, nature=Nature.REMOVABLE, cause="singular-derivative")
degenerate = partial(Edge, nature=Nature.DEGENERATE, cause="degenerate-decomposition")
infinite_already = partial(Edge, nature=Nature.INFINITE_INPUT, cause="inf-arithmetic")
slope_too_large = partial(Edge, nature=Nature.SLOPE_OVERFLOW, cause="overflow", ending=_LEAVES)
too_steep = partial(Edge, nature=Nature.SLOPE_OVERFLOW, cause="singular-derivative", ending=_CLOSE)
too_near = partial(Edge, nature=Nature.OVERFLOW, cause="overflow", ending=_CLOSE)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """An op on a matrix (its name in the schema). `values` is the output that holds eigenvalues or
    singular values: the slope of the others, the vectors, is infinite where two of those are
    equal. Without one, value or slope is infinite where the matrix is singular. `definite`: it
    takes symmetric matrices alone, whose eigenvalues are greater than 0."""

    argument: str
    values: int | None = None
    definite: bool = False


class OpFact:
    """One aten op (name without namespace, overload and in-place underscore). `inverse` gives its
    operand, of the result that a node saves; `matrix` is where nearness to a degenerate one can be
    measured."""

    def __init__(
        self,
        name: str,
        *edges: Edge,
        inverse: Callable[[float], float] | None = None,
        matrix: Decomposition | None = None,
    ) -> None:
        self.name, self.edges, self.inverse, self.matrix = name, edges, inverse, matrix

    def value_edge(self, values: Values) -> Edge | None:
        """The edge at which these operands break the value; None for ordinary operands."""
        return next((e for e in self.edges if e.breaks_value and _holds(e, values)), None)

    def slope_edge(self, values: Values) -> Edge | None:
        """The edge at which these operands break only the slope."""
        return next((e for e in self.edges if not e.breaks_value and _holds(e, values)), None)


def _holds(edge: Edge, values: Values) -> bool:
    """False where an operand that the edge needs was not measured."""
    try:
        return edge.holds(values)
    except KeyError:
        return False


def operands(event: Event) -> dict[str, float]:
    """What `Edge.holds` may ask for: the operands of the blamed call at the event's index.

    `self` is the value of that argument there. `self.min`, `self.max` (over the finite elements),
    `self.numel`, `self.nan`, `self.posinf`, `self.neginf`, `self.zeros` describe all of it, and
    `self.requires_grad` is 1 or 0: an op that mixes elements (a norm, a matmul, a softmax) has no
    single operand to one element of its result. `output` and `output.numel` are the result of a
    forward event, `grad_input` what a backward event wrote, `grad_output` the gradient that came
    into its node. `dtype.max`, `dtype.tiny`, `dtype.eps` are those of what was written.
    """
    found = event.values()
    backward = event.phase is Phase.BACKWARD
    described = event.saved if backward else (*event.inputs, *event.saved)
    for operand in described:
        found |= _described(operand.role, operand)
    if event.output is not None:
        role = "grad_input" if backward else "output"
        found |= _described(role, event.output)
    if event.grad_output is not None:
        found["grad_output"] = event.grad_output
    return found | _finfo(event)


def _described(role: str, operand: Operand) -> dict[str, float]:
    found = {
        f"{role}.numel": float(operand.numel),
        f"{role}.nan": float(operand.nan),
        f"{role}.posinf": float(operand.posinf),
        f"{role}.neginf": float(operand.neginf),
        f"{role}.zeros": float(operand.zeros),
        f"{role}.requires_grad": float(operand.requires_grad),
    }
    if operand.min is not None and operand.max is not None:
        found |= {f"{role}.min": operand.min, f"{role}.max": operand.max}
    if operand.at is not None:
        found[role] = operand.at
    return found


def _finfo(event: Event) -> dict[str, float]:
    dtypes = [operand.dtype for operand in (event.output, *event.saved, *event.inputs) if operand]
    found = finfo(next((dtype for dtype in dtypes if dtype), "float32"))
    return {"dtype.max": found.max, "dtype.tiny": found.tiny, "dtype.eps": found.eps}
