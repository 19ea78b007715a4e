"""An op that refused its operands, and with that ended the program."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.events import Operand
from gradscope.facts.places import Call


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The smallest and the largest eigenvalue of a matrix that has to be `definite`, else singular
    value, in float64: of several matrices those of the one whose smallest is least. `asymmetry` is
    the largest difference of two elements that symmetry would make equal."""

    step: int
    smallest: float
    largest: float
    order: int
    asymmetry: float = 0.0
    definite: bool = True


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """Indices into a dimension of `size` elements: `bad` of `numel` lie outside of it, the first at
    `index` of the operand `role`, which is `value`; `only`: all of them are. `into` is the role of
    what is indexed, `dim` its dimension."""

    role: str
    value: int
    index: tuple[int, ...]
    bad: int
    numel: int
    size: int
    into: str
    dim: int
    only: bool


@dataclass(frozen=True, slots=True)
class Unfit:
    """A Python number, given as `role`, that lies beyond the largest of a dtype."""

    role: str
    value: float
    dtype: str
    largest: float


Objected = Spectrum | OutOfRange | Unfit


@dataclass(frozen=True, slots=True)
class Raised:
    """`why` is what was measured of the operands that the op refused, after `step` backward passes.
    `earlier` are the spectra of the same call at the steps before that were looked at in full."""

    step: int
    call: Call
    operands: tuple[Operand, ...]
    why: Objected
    earlier: tuple[Spectrum, ...] = ()
