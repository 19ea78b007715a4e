"""A value that is above 0 by construction, of which an op takes what is left over a constant."""

from gradscope.facts import Call, Event, Location, Phase
from gradscope.ops import Edge
from gradscope.ops.edges import operands
from gradscope.ops.patterns import EPSILON
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence

_AT_MOST_ONE = ("sigmoid", "_softmax")  # their range means something by both of its ends
_NOT_BELOW = ("relu", "pow")  # of a layer's numbers: of any other they are a formula of its own
_OFF, _ON = (0.5, 2.0), (0.0, -0.5)


def floor(event: Event, edge: Edge) -> tuple[Call, float] | None:
    """Where an operand that has to be above 0 is a constant less than what a call of another line
    has made positive: that call, and the number that its result has to be above."""
    if not _is_at_zero(event, edge):
        return None
    calls = list(evidence.made_from(event, edge.argument))
    is_direct = bool(calls) and _shift(calls[0]) is not None
    if not is_direct:  # a factor of the operand, as in sqrt(b / (a - 1))
        calls = list(evidence.calls_up(event.shifted))
    least, lines = 0.0, [event.blame.location]
    for made, of in zip(calls, (*calls[1:], None), strict=False):
        shift = _shift(made)
        if shift is None:
            is_it = least > 0 and _is_apart(made, lines) and _is_positive(made, of)
            is_sure = _is_above(event, edge, -least) if is_direct else made.op != "pow"
            return (made, least) if is_it and is_sure else None
        if abs(shift) > EPSILON:
            least -= shift
        lines.append(made.location)
    return None


def _shift(call: Call) -> float | None:
    """The number that a call adds."""
    if call.op not in ("add", "sub") or call.constant is None:
        return None
    return call.constant if call.op == "add" else -call.constant


def _is_above(event: Event, edge: Edge, least: float) -> bool:
    """Whether nothing of the operand is below a negative number, but for rounding."""
    operand = event.operand(edge.argument)
    return operand is not None and (operand.min or 0.0) >= (1 + EPSILON) * least


def _is_at_zero(event: Event, edge: Edge) -> bool:
    """Whether the op needs an operand above 0, or 0 at the least, and no more than that."""
    if not edge.breaks_value or event.phase is not Phase.FORWARD:
        return False
    known = operands(event)
    held = [[edge.holds({**known, edge.argument: x}) for x in one] for one in (_OFF, _ON)]
    return any(held[1]) and not any(held[0])


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
