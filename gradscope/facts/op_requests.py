"""What a rule asks a repair for at one op: the op table words these, with the op's operands."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.places import Location


@dataclass(frozen=True, slots=True)
class HarmlessOperand:
    """A harmless operand where the result is thrown away: `hidden` from the loss as it is, so that
    the loss stays the same to the bit; else the loss has met the result."""

    hidden: bool


@dataclass(frozen=True, slots=True)
class KeepOff:
    """Keep an operand of the op off the edge on which it lies, for good."""


@dataclass(frozen=True, slots=True)
class DivideByOne:
    """Divide by 1 where the divisor is 0 as well as what is divided: 0 / 0 counts as 0."""


@dataclass(frozen=True, slots=True)
class LearnPositive:
    """A function that stays positive, and learns: what is made at `made` has to be. In the place of
    the ReLU there, or around it where it may have either sign (`signed`)."""

    made: Location
    signed: bool


@dataclass(frozen=True, slots=True)
class SelectElements:
    """Reduce over the elements at which the op has a value: those of its data tell which."""


@dataclass(frozen=True, slots=True)
class StableForm:
    """Another form of the expression around the op, which computes the same."""


@dataclass(frozen=True, slots=True)
class WiderDtype:
    """Compute the op in a wider dtype."""


@dataclass(frozen=True, slots=True)
class AllowEmpty:
    """A result for what the op does with nothing: no elements, no targets, no keys."""


OfOp = (
    HarmlessOperand
    | KeepOff
    | DivideByOne
    | LearnPositive
    | SelectElements
    | StableForm
    | WiderDtype
    | AllowEmpty
)
