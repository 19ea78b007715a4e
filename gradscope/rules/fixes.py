"""The repairs that several rules propose, worded from the op table. Source edits come later."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise

from gradscope.facts import Call, Event, Fix, Operand, OutOfDomain, Trace
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.dtypes import HALF, Margin
from gradscope.ops.dtypes import wider as wider_than
from gradscope.ops.edges import Nature, operands
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence
from gradscope.rules.wording import phrases, proposals

Fixes = tuple[Fix, ...]


def texts(event: Event) -> dict[str, str]:
    """Source text that stands for each operand, by schema name."""
    found = {key: str(value) for key, value in event.scalars}
    for one in event.operands:
        found[one.role] = phrases.source(one, one.role)
    return found


def text_at(edge: Edge, event: Event) -> str:
    """What stands for the operand that lies on the edge."""
    return texts(event).get(edge.argument, phrases.source(None, edge.argument))


def subject(edge: Edge, event: Event) -> str:
    """The operand that lies on the edge, in a sentence."""
    return phrases.name(event.operand(edge.argument), phrases.unnamed(event.op, edge))


def says(edge: Edge, event: Event) -> str:
    """The edge in words: "slope is inf where `x` is 0"."""
    named = {one.role: phrases.name(one, "the operand") for one in event.operands}
    return edge.says.format_map(_Named({**named, "x": named.get(edge.argument, "the operand")}))


def _masked(edge: Edge | None, event: Event, *_: object, hidden: bool) -> Fixes:
    """A harmless operand where the op breaks, or where a mask throws its result away."""
    op = phrases.spelled(event.op)
    title = proposals.HARMLESS.format(op=op)
    request = ask.HarmlessOperand(hidden)
    code = f"safe = torch.where(used, x, 1.0)  # 1.0: any operand that `{op}` can take"
    if edge is not None and edge.cure.condition and edge.cure.harmless:
        x, condition = text_at(edge, event), _fill(edge.cure.condition, edge, event)
        harmless = _fill(edge.cure.harmless, edge, event)
        code = f"safe = torch.where({condition}, {x}, {harmless})  # then `{op}` of `safe`"
    return (Fix("masked-branch", title, "safe", code, request=request),)


def _guards(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """Keep the operand off the edge for good; nothing where the table knows no guard."""
    if edge is None or not edge.cure.guard:
        return ()
    kind = _guard_kind(edge, event)
    title = proposals.guarded(kind, subject(edge, event), event.op, edge)
    return (Fix(kind, title, "unsafe", _fill(edge.cure.guard, edge, event), request=ask.KeepOff()),)


def _power(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """A negative power of data that has none, as of a graph's degrees, is 0: of 0, or of what is
    below it."""
    base = event.operand("self")
    if edge is None or edge.argument != "self" or not edge.cure.guard or base is None:
        return ()
    is_negative = edge.nature is Nature.DOMAIN and event.values().get("exponent", 0.0) < 0
    if edge.cause != "zero-division" and not is_negative:
        return ()
    result = event.output.shape if event.output is not None else None
    if base.shape != result or base.zeros >= base.numel or base.requires_grad:
        return ()
    title, code = without_value(edge, subject(edge, event), text_at(edge, event))
    return (Fix("guard-empty", title, "unsafe", code, request=ask.DivideByOne()),)


def without_value(edge: Edge, what: str, x: str) -> tuple[str, str]:
    """The title, and the code behind a power, of 0 in its place where its base `x`, in a sentence
    `what`, has no negative power."""
    is_below = edge.nature is Nature.DOMAIN
    template, sign = (proposals.NOT_ABOVE, "<=") if is_below else (proposals.EMPTY, "==")
    return template.format(what=what), f".masked_fill({x} {sign} 0, 0.0)"


def _divisor(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """Divide by 1 where 0 is divided by 0, or where the divisor is data: a count, a sum of a mask
    or of weights. Nothing for any other division."""
    divisor = event.operand(edge.argument) if edge is not None else None
    if edge is None or divisor is None or edge.argument != "other":
        return ()
    if event.values().get("self") != 0 and divisor.requires_grad:
        return ()
    x = text_at(edge, event)
    title = proposals.NOTHING.format(what=subject(edge, event))
    code = f"torch.where({x} != 0, {x}, 1.0)"
    request = ask.DivideByOne(is_total=divisor.numel == 1 and not divisor.requires_grad)
    return (Fix("guard-empty", title, "unsafe", code, request=request),)


def _selected(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """Leave out the elements at which the op has no value; nothing where it has none at all, or
    where these are not told by data alone."""
    operand = event.operand(edge.argument) if edge is not None else None
    if edge is None or operand is None or not edge.cure.condition or operand.requires_grad:
        return ()
    shape = event.output.shape if event.output is not None else ()
    if not shape or operand.shape != shape or operand.zeros >= operand.numel:
        return ()
    condition = _fill(edge.cure.condition, edge, event)
    title = proposals.SELECTED.format(condition=condition)
    return (Fix("guard-empty", title, "unsafe", f"[{condition}]", request=ask.SelectElements()),)


_SCALES = ((0.0, 255.0), (-1.0, 1.0), (1.0, 2.0))  # of labels: white is 1, or they count from 1
_FLOORS = ("clamp", "clamp_min")
_POWERS = ("pow", "square", "mul", "sqrt")  # 0 where what they are made of is
_PICKS = ("index", "index_select", "gather", "masked_select")
SOFTPLUS = "torch.nn.functional.softplus(x)"
_POSITIVES = (0.5, 2.0)
# What gives a part of a layer's output another meaning: one part, or all of them at once.
_PARTS_OF_ONE = ("select", "slice", "narrow", "index")
_PARTS = frozenset((*_PARTS_OF_ONE, "split", "split_with_sizes", "chunk", "unbind"))


def _positive(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """A softplus for the ReLU that made the operand, or made what was summed up to it: shares are
    divided by their sum, and may all be 0. Or around a layer whose output has to be positive."""
    made = list(evidence.made_from(event, edge.argument)) if edge is not None else []
    passed = ("add", "div", "sum", *_POWERS) if event.op != "div" else _POWERS
    call = next((one for one in made if one.op not in (*passed, *_PICKS)), None)
    if edge is None or call is None or call.location is None or not edge.cure.guard:
        return ()
    # log(x + 1) of a layer: what x is for is a number of its own, which is positive too.
    unshifted = (one for one in made if one.op != "add" or (one.constant or 0.0) <= 0)
    is_direct = call is next(unshifted, None)
    is_head = is_direct and call.op in evidence.HEADS and edge.nature is Nature.DOMAIN
    if is_head and any(edge.holds({**operands(event), edge.argument: x}) for x in _POSITIVES):
        return ()  # acos, acosh: not every positive number is in the domain
    part = _part(event, edge.argument) if is_head else None
    rectifier = call.op.strip("_")
    # A clamp may as well take a rounding error away from what is never negative.
    of_layer = any(after.op in evidence.HEADS for before, after in pairwise(made) if before is call)
    if not (is_head or rectifier == "relu" or (rectifier in _FLOORS and of_layer)):
        return ()
    instead = "" if is_head else f", in the place of {rectifier}"
    title = proposals.POSITIVE.format(what=subject(edge, event), instead=instead)
    request: ask.Request = ask.LearnInside(call.location, is_head)
    if part is not None:
        at = part.location if part.op in _PARTS_OF_ONE else None
        request = ask.LearnInside(at, True) if at is not None else ask.LearnPartInside()
    return (Fix(_guard_kind(edge, event), title, "unsafe", SOFTPLUS, request=request),)


def _logarithm(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """The logarithm of a parameter that training has brought to 0 or below."""
    if edge is None or edge.cure.margin not in (Margin.LOG, Margin.ROOT):
        return ()
    if event.given_by is not None:  # from the start it is no scale
        return tuple(as_logarithm(event.given_by)) if event.step else ()
    return tuple(as_logarithm(event.operand(edge.argument)))


def _started(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """Another start for a parameter that is 0 until something is learnt. Of 0 / 0 it may be right:
    a rotation by nothing."""
    given = event.given_by
    if given is None or event.step or given.zeros < given.numel or not given.name:
        return ()
    if len(event.inputs) > 1 and event.values().get("self") == 0:
        return ()
    title = proposals.STARTED.format(name=given.name)
    request = ask.StartAtOne(given.name)
    return (Fix("init", title, "unsafe", "torch.ones(...)", request=request),)


def as_logarithm(given: Operand | None) -> Iterator[Fix]:
    """Of a parameter alone, which the program trains as it is."""
    if given is None:
        return
    if given.held_as in ("parameter", "leaf") and given.requires_grad and given.name:
        title = proposals.LOGARITHM.format(name=given.name)
        request = ask.LearnLogarithm(given.name)
        code = f"log_{given.name.rpartition('.')[2]}.exp()"
        yield Fix("init", title, "unsafe", code, request=request)


def kept_inside(
    call: Call, why: OutOfDomain, given: Operand | None = None
) -> Iterator[Fix | ask.Request]:
    """Where the op that gave a number outside may give others: a layer any, a rectifier 0, an
    exponential 0 by underflow. Else where the distribution, or the op, is given it."""
    op, is_head = call.op.strip("_"), call.op in evidence.HEADS
    if why.role == "probs":
        yield ask.GiveLogits()
    if why.role == "target":
        ends = (given.min, given.max) if given is not None else None
        if ends in _SCALES:
            yield ask.ScaleTarget(*ends)
        yield Fix("data", "map the targets to numbers between 0 and 1", code="target / classes")
        return
    if given is not None and why.low == 0 and why.high == math.inf:
        yield from as_logarithm(given)
    by = ask.Inside.SOFTPLUS if why.high == math.inf else ask.Inside.CLAMP
    if by is ask.Inside.CLAMP and is_head:
        by = ask.Inside.SIGMOID
        if why.kind == "binary_cross_entropy" and why.role == "self":
            yield ask.TakeLogits(why.place)
    request = None
    if why.position is not None:
        request = ask.LearnInside(why.place, True, (why.role, why.position), by)
    if has(op, Trait.POSITIVE) and why.value <= why.low:
        yield ask.AddBehind(call)
    elif call.location is not None and (is_head or op in ("relu", *_FLOORS)):
        request = ask.LearnInside(call.location, is_head, by=by)
    template = proposals.POSITIVE if by is ask.Inside.SOFTPLUS else proposals.BETWEEN
    title = template.format(what=f"`{called(why.role)}`", instead="", by=by.value)
    code = SOFTPLUS if by is ask.Inside.SOFTPLUS else f"{by.value}(x)"
    yield Fix("clamp-domain", title, "unsafe", code, request=request)


def called(role: str) -> str:
    """An operand as torch's documentation names it."""
    return "input" if role == "self" else role


def _part(event: Event, role: str) -> Call | None:
    """What takes an operand out of the output of the op that made it."""
    one = evidence.above(event, role)
    while one is not None and (one.call is None or evidence.moves(one.call)):
        if one.call is not None and one.call.op in _PARTS:
            return one.call
        one = next((above for above in one.inputs if above is not None), None)
    return None


def _guard_kind(edge: Edge, event: Event) -> str:
    """An epsilon keeps an operand from 0; anything else is a clamp to the domain."""
    if edge.cause == "degenerate-decomposition":
        return "epsilon"
    if edge.nature in (Nature.DOMAIN, Nature.OVERFLOW):
        return "clamp-domain"
    return "epsilon" if event.values().get(edge.argument) == 0 else "clamp-domain"


def _stable(edge: Edge | None, event: Event, trace: Trace) -> Fixes:
    """The stable form of the whole expression: of the pattern around the op, else of the op."""
    pattern = evidence.pattern(event, trace)
    if pattern is not None:
        names = {"x": "x", "dim": "-1"}
        return (_in_one_step(pattern.stable.format_map(_Named(names))),)
    if edge is not None and edge.wider:
        return (wider(event),)
    if edge is not None and edge.stable:
        return (_in_one_step(_fill(edge.stable, edge, event)),)
    return ()


def _made_stably(edge: Edge | None, event: Event, *_: object) -> Fixes:
    """The stable form of the logarithm that made the operand: of 1 + x it is 0 where the sum has
    rounded a small x away."""
    made = evidence.made_from(event, edge.argument) if edge is not None else ()
    call = next((one for one in made if one.op not in _PICKS), None)
    if call is None or call.op != "log" or call.location is None:
        return ()
    title = proposals.MADE_STABLY.format(op=phrases.spelled(event.op))
    return (Fix("stable-op", title, "safe", request=ask.StableForm(call.location)),)


def _in_one_step(code: str) -> Fix:
    return Fix("stable-op", proposals.STABLE.format(text=code), "safe", request=ask.StableForm())


def wider(event: Event) -> Fix:
    """Compute this op in a wider dtype."""
    x = next((phrases.source(one, one.role) for one in event.operands), "x")
    wide, cast = wider_than(evidence.dtype(event))
    title = proposals.WIDER.format(op=phrases.spelled(event.op), dtype=wide)
    return Fix("dtype", title, "unsafe", f"{x}.{cast}", request=ask.WiderDtype())


def _fill(template: str, edge: Edge, event: Event) -> str:
    """A template of the table with the operands' source text put in."""
    names, x = texts(event), text_at(edge, event)
    operand = event.operand(edge.argument)
    eps = edge.cure.eps(evidence.dtype(event), operand.largest if operand else None)
    return template.format_map(_Named({**names, "x": x, "eps": eps}))


class _Named(dict[str, str]):
    """A role that was not measured stands for itself."""

    def __missing__(self, key: str) -> str:
        return key


_hidden, _harmless = partial(_masked, hidden=True), partial(_masked, hidden=False)


def _wider(edge: Edge | None, event: Event, *_: object) -> Fixes:
    return (wider(event),)


def _wider_half(edge: Edge | None, event: Event, *_: object) -> Fixes:
    return (wider(event),) if evidence.dtype(event) in HALF else ()


# What is asked for first, by the cause: what is exact, then what leaves all other elements as they
# are, then what moves them. A mask has told that the result does not count; a logarithm near 0 and
# a quotient near 0 are large, so that a bound is nearer to them than any harmless number.
PREFERENCE: Mapping[str, tuple[Callable[[Edge | None, Event, Trace], Fixes], ...]] = {
    "masked-branch": (_hidden, _stable, _guards),
    "singular-derivative": (_stable, _guards),
    "zero-division": (
        _started,
        _stable,
        _made_stably,
        _power,
        _divisor,
        _selected,
        _positive,
        _guards,
        _harmless,
    ),
    "log-zero": (
        _started,
        _stable,
        _made_stably,
        _selected,
        _logarithm,
        _positive,
        _guards,
        _harmless,
    ),
    "domain-error": (_logarithm, _positive, _power, _guards),
    "degenerate-decomposition": (_guards, _stable),
    "overflow": (_wider_half, _stable, _guards, _wider),
    "underflow": (_guards, _stable, _wider),
}


def preferred(cause: str, event: Event, edge: Edge | None, trace: Trace) -> Fixes:
    """The fixes for an op that breaks on an edge, the one to prefer first, none twice."""
    found = (fix for ways in PREFERENCE[cause] for fix in ways(edge, event, trace))
    return tuple(dict.fromkeys(found))
