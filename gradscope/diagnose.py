"""From symptoms back to their roots, and from roots to findings.

A root is the event where the path back from a symptom ends: the birth of the bad value, the data
that brought it in, the memory that held it. One root is one finding, however many symptoms and
rules know of it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gradscope import rules
from gradscope.facts import (
    DEFAULT_LIMITS,
    Event,
    Finding,
    Kind,
    Limits,
    Phase,
    Root,
    Subject,
    Symptom,
    Trace,
    Trouble,
)
from gradscope.rules import order
from gradscope.rules.causes.rule_fault import RuleFault


def diagnose(trace: Trace, limits: Limits = DEFAULT_LIMITS) -> tuple[Finding, ...]:
    """What is wrong, errors first, the likeliest root first. `limits` are those on sizes."""
    roots = find_roots(trace)
    asked = [type(rule)(limits) for rule in rules.RULES.values()]
    found = [finding for rule in asked for finding in _ask(rule, trace, roots)]
    joined = order.without_consequences(_without_repeats(_join(found, roots)))
    ranked = sorted(joined, key=lambda f: (f.severity.rank, *_place(f, roots)))
    return order.with_reasons_first(tuple(ranked))


def _ask(rule: rules.Rule, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
    """What one rule says. A rule that raises costs its own verdict and no other's."""
    try:
        yield from rule.check(trace, roots)
    except Exception as fault:
        yield RuleFault().report(rule, fault)


def find_roots(trace: Trace) -> tuple[Root, ...]:
    """The roots of all symptoms, in the order in which they happened.

    Where the loss itself is bad, only what made it so counts: the gradients that are bad with it
    are consequences.
    """
    events = {event.id: event for event in trace.events}
    values = [symptom for symptom in trace.symptoms if symptom.trouble is not Trouble.WRONG]
    first = min((symptom.step for symptom in values), default=0)
    # Of what was not looked at, the next step knows only that it was bad already.
    last = first + 1 if trace.unexamined is None else trace.unexamined.step
    symptoms = [symptom for symptom in values if symptom.step <= last]
    losses = [symptom for symptom in symptoms if symptom.subject is Subject.LOSS]
    ways: dict[int, list[tuple[Symptom, tuple[Event, ...]]]] = {}
    for symptom in losses or symptoms:
        for way in _explaining(symptom, list(_ways_back(symptom, events))):
            ways.setdefault(way[0].id, []).append((symptom, way))
    roots = [
        Root(events[id], tuple(symptom for symptom, _ in found), _with_kills(found[0][1], trace))
        for id, found in sorted(ways.items())
    ]
    roots = list(_one_a_place(roots, trace))
    if losses and roots:
        rest = tuple(symptom for symptom in symptoms if symptom not in losses)
        roots[0] = replace(roots[0], symptoms=roots[0].symptoms + rest)
    return tuple(roots)


def _ways_back(symptom: Symptom, events: dict[int, Event]) -> Iterator[tuple[Event, ...]]:
    """The shortest chain from each root of a symptom to the event that made its bad value."""
    if symptom.event is None or symptom.event not in events:
        return
    towards: dict[int, int | None] = {symptom.event: None}
    waiting = deque([symptom.event])
    while waiting:
        event = events[waiting.popleft()]
        sources = [id for id in event.sources if id in events]
        if _is_root(event, [events[id] for id in sources], events):
            chain = [event]
            while (after := towards[chain[-1].id]) is not None:
                chain.append(events[after])
            yield tuple(chain)
            continue
        for id in sources:
            if id not in towards:
                towards[id] = event.id
                waiting.append(id)


def _explaining(symptom: Symptom, ways: list[tuple[Event, ...]]) -> list[tuple[Event, ...]]:
    """The ways that tell why: beside the op that made a NaN, an intentional inf is not at fault."""
    born = [way for way in ways if way[0].kind is not Kind.CONSTANT]
    return born if born and symptom.trouble is Trouble.NAN else ways


def _is_root(event: Event, sources: list[Event], events: dict[int, Event]) -> bool:
    if event.kind in (Kind.BIRTH, Kind.SOURCE, Kind.RECEIVED, Kind.UNINITIALIZED) or not sources:
        return True
    # An intentional inf cannot be to blame for what happened when a saved copy of it met a
    # gradient: the op that saved it is.
    return event.kind is Kind.REVIVAL and all(_is_intentional(source, events) for source in sources)


def _is_intentional(event: Event, events: dict[int, Event]) -> bool:
    """An inf that was written on purpose, or a copy of one: a NaN made of it would be a birth."""
    waiting, seen = [event], {event.id}
    while waiting:
        one = waiting.pop()
        if one.kind is Kind.CONSTANT:
            continue
        sources = [events[id] for id in one.sources if id in events]
        if one.kind is not Kind.PROPAGATION or one.phase is not Phase.FORWARD or not sources:
            return False
        waiting += [source for source in sources if source.id not in seen]
        seen.update(source.id for source in sources)
    return True


def _with_kills(chain: tuple[Event, ...], trace: Trace) -> tuple[Event, ...]:
    """The chain with the events that hid its values going forward, in the order of time."""
    if not any(event.kind is Kind.REVIVAL for event in chain):
        return chain
    forward = _forward_descendants(chain[0], trace)
    kills = [e for e in trace.events if e.kind is Kind.KILL and forward.intersection(e.sources)]
    by_id = {event.id: event for event in (*chain, *kills[:3])}
    return tuple(by_id[id] for id in sorted(by_id)) if kills else chain


def _forward_descendants(root: Event, trace: Trace) -> set[int]:
    found = {root.id}
    for event in trace.events:
        if event.phase is not Phase.BACKWARD and found.intersection(event.sources):
            found.add(event.id)
    return found


def _one_a_place(roots: Iterable[Root], trace: Trace) -> Iterator[Root]:
    """Join roots of the same op on the same line: a loop, a helper that is called twice and a term
    that is written twice are one cause. So are an op and its own formula, differentiated again, and
    all that an optimizer breaks in one step with a setting that is not finite."""
    roots = tuple(roots)
    broken = {setting.step for setting in trace.settings}
    places: dict[object, Root] = {}
    calls = {root.event.blame.seq: root for root in roots}
    for root in roots:
        outer = root.event.blame.formula_of
        first = root if outer is None else calls.get(outer.seq, root)
        location = first.event.blame.location
        key: object = first.event.id
        if location is not None:
            by_setting = first.event.phase is Phase.OPTIMIZER and first.event.step in broken
            key = ("" if by_setting else first.event.op, location.file, location.line)
        known = places.get(key)
        if known is None:
            places[key] = root
            continue
        extra = tuple(symptom for symptom in root.symptoms if symptom not in known.symptoms)
        also = known.also
        if location is not None:  # the same span may have run in another module
            spots = filter(None, (known.event.blame.location, *also))
            spans = [replace(one, module=location.module) for one in spots]
            also = also if location in spans else (*also, location)
        places[key] = replace(known, symptoms=known.symptoms + extra, also=also)
    yield from places.values()


def _join(found: Iterable[Finding], roots: tuple[Root, ...]) -> Iterator[Finding]:
    """One finding a root: of the rules that explain it, the first by `rules.order`."""
    best: dict[object, Finding] = {}
    for number, finding in enumerate(found):
        root = _root_of(finding, roots)
        key: object = ("root", root) if root is not None else ("own", number)
        if key not in best or order.rank(finding) < order.rank(best[key]):
            best[key] = finding
    yield from best.values()


def _without_repeats(found: Iterable[Finding]) -> Iterator[Finding]:
    """Findings that say the same of the same place are one, whatever roots they come from."""
    kept: dict[object, Finding] = {}
    for finding in found:
        key = (finding.rule, finding.message, finding.location)
        first = kept.setdefault(key, finding)
        if first is not finding:
            extra = tuple(one for one in finding.symptoms if one not in first.symptoms)
            kept[key] = replace(first, symptoms=first.symptoms + extra)
    yield from kept.values()


def _root_of(finding: Finding, roots: tuple[Root, ...]) -> int | None:
    if not finding.chain:
        return None
    ids = {event.id for event in finding.chain}
    return next((place for place, root in enumerate(roots) if root.event.id in ids), None)


def _place(finding: Finding, roots: tuple[Root, ...]) -> tuple[int, int, int]:
    """A wrong gradient first, then in the order of the roots; then by rank."""
    if order.is_wrong_gradient(finding):
        return (-1, finding.step, 0)
    place = _root_of(finding, roots)
    return (len(roots) if place is None else place, *order.rank(finding))
