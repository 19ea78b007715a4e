"""A value that is above 0 by construction, of which an op takes what is left over a constant."""

from gradscope.dataclass import dataclass
from gradscope.facts import Call, Event, Location
from gradscope.ops import Edge
from gradscope.ops.edges import operands
from gradscope.ops.patterns import EPSILON
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence

_AT_MOST_ONE = ("sigmoid", "_softmax")  # what is added to them is a range of another meaning
_NOT_BELOW = ("relu", "pow")  # 0 too; and they do other things than make a layer's numbers positive
_OFF, _ON = (0.5, 2.0), (0.0, -0.5)


@dataclass(frozen=True, slots=True)
class Floor:
    """`made` gives numbers above 0, which have to be above `least`."""

    made: Call
    least: float


def floor(event: Event, edge: Edge) -> Floor | None:
    """Where an operand that has to be above 0 is a constant less than what a call of another line
    has made positive."""
    if not _is_at_zero(event, edge):
        return None
    calls, least, lines = evidence.made_from(event, edge.argument), 0.0, [event.blame.location]
    for made in calls:
        if made.op not in ("add", "sub") or made.constant is None:
            operand, of = event.operand(edge.argument), next(calls, None)
            is_above = operand is not None and (operand.min or 0.0) >= -(1 + EPSILON) * least
            is_it = is_above and least > 0 and _is_apart(made, lines)
            return Floor(made, least) if is_it and _is_positive(made, of) else None
        if abs(made.constant) > EPSILON:
            least += made.constant if made.op == "sub" else -made.constant
        lines.append(made.location)
    return None


def _is_at_zero(event: Event, edge: Edge) -> bool:
    """Whether the op needs an operand above 0, or 0 at the least, and no more than that."""
    known = operands(event)
    held = [[edge.holds({**known, edge.argument: x}) for x in one] for one in (_OFF, _ON)]
    return edge.breaks_value and any(held[1]) and not any(held[0])


def _is_apart(made: Call, lines: list[Location | None]) -> bool:
    """Whether the value is made in another statement: `log(exp(x) - 1)` is one formula, also where
    two lines of a function write it."""
    at = made.location
    if at is None:
        return False
    known = [one for one in lines if one is not None and one.file == at.file]
    if any(one.line <= at.line <= one.end_line for one in known):
        return False
    return made.op not in ("exp", "exp2") or all(one.function != at.function for one in known)


def _is_positive(made: Call, of: Call | None) -> bool:
    if made.op in _NOT_BELOW:
        return of is not None and of.op in evidence.HEADS
    return has(made.op, Trait.POSITIVE) and made.op not in _AT_MOST_ONE
