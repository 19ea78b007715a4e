"""What rules ask of a root: its situation, the operands, the edge, the mask."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import islice

from gradscope.facts import (
    Ancestor,
    Call,
    Event,
    Kind,
    Location,
    Operand,
    Phase,
    Root,
    Subject,
    Trace,
)
from gradscope.ops import Edge, lookup
from gradscope.ops.dtypes import finfo
from gradscope.ops.edges import operands as op_values
from gradscope.ops.patterns import EPSILON, SOFTMAX_BY_HAND, Pattern, recognize
from gradscope.ops.traits import Trait, discards, has

# Of a layer that gives numbers of either sign.
HEADS = ("addmm", "mm", "bmm", "linear", "convolution")


class Situation(StrEnum):
    """Where a root's harm comes from. Each rule about non-finite values answers to one of these."""

    ELSEWHERE = "elsewhere"  # another rank
    OUTSIDE = "outside"  # data, a parameter, unwritten memory
    HIDDEN = "hidden"  # the value was thrown away going forward; its gradient was not
    VALUE = "value"  # the value itself breaks
    SLOPE = "slope"  # the value is fine, the gradient is used and breaks


def situation(root: Root) -> Situation:
    if root.event.kind is Kind.RECEIVED:
        return Situation.ELSEWHERE
    # Born going back, a bad slope may go on into a loss that is made of gradients (a penalty).
    going_forward = (Subject.LOSS, Subject.VALUE, Subject.SENT)
    reaches_the_loss = any(symptom.subject in going_forward for symptom in root.symptoms)
    hidden = root.event.phase is Phase.BACKWARD or not reaches_the_loss
    if hidden and discard(root) is not None:
        return Situation.HIDDEN
    if root.event.kind in (Kind.SOURCE, Kind.UNINITIALIZED):
        return Situation.OUTSIDE
    if root.event.phase is Phase.BACKWARD:
        return Situation.SLOPE
    return Situation.VALUE


def breaks_in_use(root: Root) -> bool:
    """Whether the value or the slope breaks where it is used: not hidden, not from outside."""
    return situation(root) in (Situation.VALUE, Situation.SLOPE)


def phase(root: Root) -> Phase:
    """The phase in which the first bad value that matters is born."""
    if root.event.kind in (Kind.SOURCE, Kind.RECEIVED):
        return Phase.DATA
    gradients = [symptom.subject is Subject.GRADIENT for symptom in root.symptoms]
    if root.event.phase is Phase.FORWARD and gradients and all(gradients):
        return Phase.BACKWARD
    return root.event.phase


def harmed(trace: Trace, roots: Iterable[Root]) -> set[Location | None]:
    """Where calls broke something, or gave bad values that a mask hid: they have findings."""
    return {one.blame.location for one in (*(root.event for root in roots), *trace.hidden)}


def discard(root: Root) -> Call | None:
    """The call that threw the bad element away on its way to the loss."""
    hidden = (event.hidden_by for event in (root.event, *root.chain))
    killed = [event.call for event in root.chain if event.kind is Kind.KILL]
    calls = (call for call in (*hidden, *killed) if call is not None)
    absorbed = not all(_throws_away(call) for call in killed)
    return next((call for call in calls if _throws_away(call, absorbed=absorbed)), None)


def _throws_away(call: Call, *, absorbed: bool = False) -> bool:
    """Whether an element of the operand may not reach the loss, and receive gradient 0. A product
    does that only where a factor is 0, a view only leaves a part out: no explanation where the inf
    has already been `absorbed` by arithmetic, as 1 / (1 + exp(-x)) hides nothing."""
    if absorbed and (call.view or has(call.op, Trait.MULTIPLIES)):
        return False
    return discards(call.op) or has(call.op, Trait.MULTIPLIES)


def leak(root: Root) -> Event | None:
    """The first backward event of the chain: where the gradient turns bad."""
    events = (root.event, *root.chain)
    return next((event for event in events if event.phase is Phase.BACKWARD), None)


def cancelled(root: Root) -> Event | None:
    """The sum on the way to the symptom in which inf met the inf of another branch."""
    return next((event for event in root.chain if len(event.branches) > 1), None)


def edge(event: Event) -> Edge | None:
    """The entry of the op table that these operands lie on. Going forward only an edge of the
    value can explain a birth, going back also one of the slope."""
    fact = lookup(event.op)
    if fact is None:
        return None
    backward = event.phase is Phase.BACKWARD
    # What the op inside a node's formula read is not what the forward call read.
    known = op_values(replace(event, inputs=()) if backward and event.saved else event)
    return fact.value_edge(known) or (fact.slope_edge(known) if backward else None)


def leaves_range(event: Event) -> bool:
    """Whether the result is inf since its dtype ends: by the op table, or of an op that it does not
    explain, and that gave inf from finite values."""
    at = edge(event)
    known = at is not None and at.cause == "overflow"
    return known or (is_unexplained(event, at) and not gives_nan(event))


def slope(event: Event, at: Edge | None) -> float:
    """What the op multiplied the gradient by, inf or NaN: as was measured where that was not 0."""
    gives = event.output.at if event.output is not None else None
    if event.phase is Phase.BACKWARD and event.grad_output and gives is not None:
        return math.nan if math.isnan(gives) else math.inf
    return at.nature.slope if at is not None else math.inf


def pattern(event: Event, trace: Trace) -> Pattern | None:
    """The known expression that the op is part of."""
    found = recognize(event)
    if found is not None or event.op != "exp":
        return found
    # The way from exp(x) to the loss is shorter through exp(x) / s than through s = exp(x).sum().
    users = [one for one in trace.events if event.id in one.sources]
    sums = {one.id for one in users if one.op == "sum"}
    shared = any(one.op == "div" and sums.intersection(one.sources) for one in users)
    return SOFTMAX_BY_HAND if shared else None


def dtype(event: Event) -> str:
    """The dtype in which the op computes."""
    found = (one.dtype for one in (event.output, *event.operands) if one and one.dtype)
    return next(found, "").removeprefix("torch.")


def gives_nan(event: Event) -> bool:
    """True where the first bad element is NaN; taken for granted where nothing was measured."""
    output = event.output
    if output is None:
        return event.kind is not Kind.CONSTANT
    return math.isnan(output.at) if output.at is not None else output.nan > 0


def is_attention(event: Event) -> bool:
    """A fused op that makes its scores of `query` and `key` by itself."""
    return event.operand("query") is not None and event.operand("key") is not None


def infinite_operands(event: Event) -> tuple[Operand, ...]:
    """The operands that are already inf or NaN, at the bad element where that was measured."""
    inputs = event.operands
    here = tuple(one for one in inputs if one.at is not None and not math.isfinite(one.at))
    return here or tuple(one for one in inputs if one.at is None and one.bad)


def is_fed_finite(event: Event) -> bool:
    """True where every operand was finite, at the bad element where that was measured; of what read
    bad values, and was not measured, nobody knows."""
    numbers = (*event.values().values(), event.grad_output or 0.0)
    if event.sources and not event.inputs:
        return False
    return not infinite_operands(event) and all(map(math.isfinite, numbers))


def is_unexplained(event: Event, edge: Edge | None) -> bool:
    """Whether an op of which the table tells nothing has broken on finite values."""
    return edge is None and event.kind is not Kind.CONSTANT and is_fed_finite(event)


# Where an operand stands among the inputs of its autograd node, which keeps no names.
_POSITION = {"other": 1, "exponent": 1, "tensor1": 1, "tensor2": 2, "end": 1, "mat2": 1}


def above(event: Event, role: str) -> Ancestor | None:
    """How the operand of that name was made; None where no gradient flows through it."""
    if event.phase is Phase.BACKWARD:
        at = _POSITION.get(role, 0)
    else:
        at = next((i for i, one in enumerate(event.inputs) if one.role == role), -1)
    return event.ancestry[at] if 0 <= at < len(event.ancestry) else None


def made_by(event: Event, role: str) -> Call | None:
    """The call that made the operand of that name, copies and views left out."""
    return next(made_from(event, role), None)


def made_from(event: Event, role: str) -> Iterator[Call]:
    """The calls that made the operand of that name, each from the first operand with a gradient of
    the one before, nearest first; copies and views left out."""
    return calls_up(above(event, role))


def calls_up(one: Ancestor | None) -> Iterator[Call]:
    """Those from a node of the graph on, itself among them."""
    while one is not None:
        if one.call is not None and not moves(one.call):
            yield one.call
        one = next((above for above in one.inputs if above is not None), None)


def lost_epsilon(event: Event, role: str) -> str:
    """A sentence for a guard that is too small for its dtype: `x + 1e-50` in float32."""
    made = made_by(event, role)
    added = abs(made.constant or 0.0) if made is not None else 0.0
    limits = finfo(dtype(event))
    if not 0 < added <= limits.tiny * limits.eps / 2:
        return ""
    return f" The {added:g} that it adds is 0 in {dtype(event)}."


_FROM_RESULT_TO_EPSILON = 4  # ops: a factor, its sign, a view and the sum
_ELEMENTWISE_FACTORS = ("mul", "div", "neg", "reciprocal")


def late_epsilon(event: Event) -> Call | None:
    """The op that adds a small constant to the result, or to a multiple of it: a guard on the wrong
    side of the singular op."""
    for after in event.path[:_FROM_RESULT_TO_EPSILON]:
        added = after.constant if after.op == "add" else None
        if added is not None:
            return after if 0 < abs(added) <= EPSILON else None
        if not (after.view or after.op in _ELEMENTWISE_FACTORS):
            return None
    return None


def has_masked_weights(event: Event, trace: Trace) -> bool:
    """Whether it is the exp(masked) / exp(masked).sum() of a row whose sum is 0: the exponential
    has made 0 of an inf."""
    if event.values().get("other") != 0:
        return False
    made = list(islice(made_from(event, "other"), 2))
    killed = {one.call.seq for one in trace.events if one.kind is Kind.KILL and one.call}
    return [call.op for call in made] == ["sum", "exp"] and made[1].seq in killed


def is_known(event: Event) -> bool:
    """Whether the bad sample's place in the dataset is."""
    return event.sample is not None and event.sample.index is not None


def sample(event: Event) -> int | None:
    """The one sample of a batch that holds all bad elements, in an output with several; None where
    its place in the dataset is known."""
    if is_known(event):
        return None
    shape = event.output.shape if event.output else ()
    if event.row_count == 1 and event.rows and shape and shape[0] > 1 and len(shape) > 1:
        return event.rows[0]
    return None


def moves(call: Call) -> bool:
    """Whether an op hands on its operand's values as they are: a view or a copy."""
    return call.view or has(call.op, Trait.COPIES)


def _places(call: Call) -> bool:
    """Whether an op only moves values or puts them somewhere: the trouble with bad ones begins at
    the op that reads them."""
    return moves(call) or has(call.op, Trait.JOINS | Trait.WRITES)


def first_use(root: Root) -> Event:
    """The first op that computes with bad values from outside: `reader` is its call."""
    forward = (one for one in root.chain if one.phase is not Phase.BACKWARD)
    used = (one for one in forward if one is not root.event)
    # What read them first may have absorbed them: exp of a parameter that holds -inf.
    return next((e for e in used if not _places(e.blame) and e.blame.location), root.event)


def reader(root: Root) -> Call:
    return first_use(root).blame


def outside(event: Event) -> Operand | None:
    """The tensor that brought bad values in, under a name if it has one."""
    held = [one for one in event.inputs if one.bad]
    output = (event.output,) if event.output is not None else ()
    named = (one for one in (*held, *output) if one.name)
    return next(named, None) or next(iter((*held, *output)), None)


def literal(root: Root, trace: Trace) -> Event | None:
    """The data with inf in it that the root computes with as it is: a tensor of several numbers
    from a list, a file or numpy, not all of them inf. A single inf is a constant of the program,
    and what arithmetic made of an inf (a row of scores, a sum) is intentional."""
    waiting = [root.event] if root.event.kind in (Kind.BIRTH, Kind.CONSTANT) else []
    while waiting:
        event = waiting.pop()
        if event.kind is Kind.CONSTANT and event.op == "lift_fresh":
            return event if event.numel > event.bad else None
        if event is root.event or _places(event.blame):
            sources = (trace.event(id) for id in event.sources)
            waiting += [source for source in sources if source is not None]
    return None
