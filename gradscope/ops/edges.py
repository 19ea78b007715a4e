"""The vocabulary of the op table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gradscope.ops.cures import NO_CURE, Cure

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


@dataclass(frozen=True, slots=True)
class Edge:
    """A place where the value or the slope of an op is singular.

    `argument` is the name in the aten schema. `holds` takes the operands' values at one element
    (schema name -> float) and tells whether they lie on this edge; further keys that it may ask
    for are those of `operands`. `cause` is the name of the rule that explains a value that breaks
    here, `cure` what to do to the operand, `stable` another form of the whole expression, in the
    templates of `Cure`.
    """

    argument: str
    nature: Nature
    holds: Holds
    says: str  # "slope is inf where {x} is 0"
    cause: str
    slope: str = ""  # "inf", "-inf", "nan": what the backward formula gives there
    cure: Cure = NO_CURE
    stable: str = ""

    @property
    def breaks_value(self) -> bool:
        return self.nature in (Nature.POLE, Nature.DOMAIN, Nature.OVERFLOW, Nature.EMPTY)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """An op on a matrix (its name in the schema). `values` is the output that holds eigenvalues or
    singular values: the slope of the others, the vectors, is infinite where two of those are
    equal. Without one, value or slope is infinite where the matrix is singular."""

    argument: str
    values: int | None = None


@dataclass(frozen=True, slots=True)
class OpFact:
    """One aten op (name without namespace, overload and in-place underscore)."""

    name: str
    edges: tuple[Edge, ...] = ()
    spelled: tuple[str, ...] = ()  # how users write it: "torch.sqrt", "Tensor.sqrt", "** 0.5"
    inverse: Callable[[float], float] | None = None  # its operand, of the result that a node saves
    matrix: Decomposition | None = None  # where nearness to a degenerate matrix can be measured

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
