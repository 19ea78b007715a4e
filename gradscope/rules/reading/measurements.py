"""What every finding says of its root: the JSON evidence, phrases with numbers, other places."""

import math
from collections.abc import Iterator
from itertools import pairwise

from gradscope.facts import Call, Event, Kind, Measured, Related, Root, Trace, percent, plural
from gradscope.ops.display import role_name
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence
from gradscope.rules.reading.evidence import Situation
from gradscope.rules.wording import phrases


def facts_at(event: Event) -> dict[str, object]:
    """What was measured at the first bad element, as the JSON contract names it."""
    counts = {"bad": event.bad, "numel": event.numel}
    return {"index": list(event.index), "operands": operand_values(event), **counts}


def facts_of(root: Root, event: Event) -> dict[str, object]:
    """The same, with what the root adds to it."""
    found = facts_at(event)
    found["names"] = {one.role: one.name for one in event.operands if one.name}
    found["dtype"] = evidence.dtype(event)
    backward = evidence.leak(root)
    if backward is not None and backward.grad_output is not None:
        found["grad_output"] = backward.grad_output
    at_edge = evidence.edge(event)
    if at_edge is not None:
        found["slope"] = evidence.slope(event, at_edge)
    if event.output is not None and event.output.at is not None:
        found["result"] = event.output.at
    if event.rows:
        found["rows"] = list(event.rows)
    if (row := evidence.sample(event)) is not None:
        found["sample"] = row
    return found


def fields_of(fact: object, *names: str) -> dict[str, object]:
    """Some fields of a fact, for a finding's evidence."""
    values = {name: getattr(fact, name) for name in names}
    return {name: list(one) if isinstance(one, tuple) else one for name, one in values.items()}


def measured(event: Event) -> Measured:
    return Measured(tuple(operand_values(event).items()), evidence.dtype(event), event.autocast)


_OUTSIDE = (Kind.SOURCE, Kind.RECEIVED, Kind.UNINITIALIZED, Kind.CONSTANT)
_SILENT = frozenset("result alpha dim keepdim correction reduction unbiased ignore_index".split())


def operand_values(event: Event) -> dict[str, float]:
    """The operands of the formula at the bad element, by schema name: no settings, and not what
    autograd keeps beside the operands."""
    flags = {name for name, value in event.scalars if isinstance(value, bool)}
    return {
        role: value
        for role, value in event.values().items()
        if role not in _SILENT | flags and "argsize" not in role
    }


def operands_in_words(event: Event) -> str:
    """ "at [0]: exponent = 0.5, `x` = 0"."""
    here = phrases.place(event.index)
    named = {one.role: f"`{one.called}`" for one in event.operands if one.called}
    came_in, scalars = event.kind in _OUTSIDE, dict(event.scalars)
    shown = [
        f"{named.get(argument, role_name(argument))} = {phrases.number(value)}"
        for argument, value in operand_values(event).items()
        if not (came_in and argument in scalars)
    ]
    return (f"at {here}: " if here and shown else "") + ", ".join(shown)


def numbers_of(root: Root, event: Event, trace: Trace) -> tuple[str, ...]:
    """The measured numbers as phrases: operands, count, sample, incoming gradient, loss, term."""
    return tuple(filter(None, _numbers(root, event, trace)))


def _numbers(root: Root, event: Event, trace: Trace) -> Iterator[str | None]:
    if event.kind is Kind.UNINITIALIZED and event.output is not None:
        yield f"{plural(event.numel, 'element')} of {event.output.dtype}"
    operands = operands_in_words(event)
    yield operands
    yield _zeros(event)
    if event.bad and (event.numel > 1 or not operands):
        yield f"{phrases.bad_of(event)} bad ({percent(event.bad, event.numel)})"
    if (row := evidence.sample(event)) is not None:
        yield f"all {event.bad:,} lie in sample {row}" if event.bad > 1 else f"sample {row}"
    backward, loss = evidence.leak(root), loss_of(root, trace)
    came = backward.grad_output if backward is not None else None
    if came is not None and not math.isnan(came):
        yield f"incoming gradient {phrases.number(came)}"
    if loss is not None and math.isfinite(loss):
        yield f"loss {phrases.number(loss)}, finite"
    if (before := growth(root, trace)) is not None:
        yield f"the loss grew before: {before}"
    yield term(event)


def _zeros(event: Event) -> str | None:
    """How much of the operand is 0, where 0 is the edge on which it lies."""
    edge = evidence.edge(event)
    one = event.operand(edge.argument) if edge is not None else None
    if edge is None or one is None or one.at != 0 or not one.zeros or one.numel < 2:
        return None
    share = percent(one.zeros, one.numel)
    name = phrases.name(one, phrases.unnamed(event.op, edge))
    return f"{name} is 0 at {phrases.of_total(one.zeros, one.numel)} ({share})"


def loss_of(root: Root, trace: Trace) -> float | None:
    step = root.symptoms[0].step if root.symptoms else root.event.step
    return next((one.loss for one in trace.steps if one.index == step), None)


def growth(root: Root, trace: Trace) -> str | None:
    """The losses of the steps before, where they already grew tenfold: "0.5, 3.1, 88"."""
    step = root.event.step
    losses = [one.loss for one in trace.steps if one.index < step and one.loss is not None]
    last = [abs(loss) for loss in losses[-4:] if math.isfinite(loss)]
    if len(last) < 2 or last[-1] < 10 * last[0] or last[-1] <= max(last[:-1]):
        return None
    return ", ".join(phrases.number(loss) for loss in last)


def _operand_at_edge(event: Event) -> Call | None:
    """The call, on another line, that made the operand of an op which a library calls."""
    edge = evidence.edge(event)
    made = evidence.made_by(event, edge.argument) if edge is not None else None
    here = event.blame.location
    if made is None or made.location is None or here is None:
        return None
    return made if str(made.location) != str(here) else None


def term(event: Event) -> str | None:
    """Which summand of the loss the culprit feeds, where the loss is a sum of single numbers."""
    for inner, total in pairwise((event.blame, *event.path)):
        if has(total.op, Trait.SHIFTS | Trait.SUBTRACTS) and None not in (inner.value, total.value):
            whole, part = total.value or 0.0, inner.value or 0.0
            at = phrases.line(inner, event.blame)
            if not math.isfinite(part):
                return f"the term{at} of the loss that it feeds is not finite"
            words = f"it feeds the term{at} of the loss that is {phrases.number(part)}"
            words = f"{words}, in a sum of {phrases.number(whole)}"
            # Of terms of both signs none is a share of the sum.
            is_share = whole != 0 and math.isfinite(whole) and 0 <= part / whole <= 1
            return f"{words} ({percent(part, whole)})" if is_share else words
    return None


def related_of(root: Root, event: Event, blame: Call) -> Iterator[Related]:
    """The other places that belong to the finding: what hid the value, the library's own line."""
    mask = evidence.discard(root) if evidence.situation(root) is Situation.HIDDEN else None
    if mask is not None and mask.location is not None:
        message = "hides those elements going forward, sends them gradient 0 going back"
        yield Related("mask", mask.location, message)
    if blame.inner is not None:
        yield Related("inner", blame.inner, f"`{phrases.spelled(blame.op)}` runs here")
        if (made := _operand_at_edge(event)) is not None and made.location is not None:
            words = f"`{phrases.spelled(made.op)}` makes the operand"
            yield Related("birth", made.location, words)
    known = {event.blame.location, *root.also}
    met = evidence.cancelled(root)
    for other in met.branches if met is not None else ():
        if other.location is not None and other.location not in known:
            yield Related("branch", other.location, "inf of the other sign comes from here")
    first = root.event.blame.location
    if first is not None and blame.location is not None and first != blame.location:
        words = f"the {phrases.outcome(root.event.output)} comes from here"
        yield Related("birth", first, words)
    for place in root.also:
        yield Related("birth", place, "and here")
