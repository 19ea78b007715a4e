"""The words about a finding that every format shares: places, symptoms, the chain, its fixes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from gradscope.facts import (
    Call,
    Event,
    Finding,
    Fix,
    Kind,
    Location,
    Subject,
    Symptom,
    Trouble,
    percent,
    text_of,
)
from gradscope.ops.display import spelled
from gradscope.report.printable import clean

LINKS = 6  # a longer chain is shown by its first and last links

SAFETY = {
    "safe": "the values stay the same",
    "unsafe": "values or training change",
    "display-only": "a direction, not a finished patch",
}

SHOWN = "the patch above repairs this as well"
UNREPAIRED = "none of the patches that were tried repairs it"
DOUBTFUL = "no patch that was tried can be taken without your judgement"

_TROUBLES = {
    Trouble.NAN: "is NaN",
    Trouble.INF: "is inf",
    Trouble.ZERO: "is 0",
    Trouble.NONE: "is None",
    Trouble.WRONG: "is wrong",
    Trouble.EXPLODING: "explodes",
    Trouble.HUGE: "is huge",
    Trouble.DIVERGING: "diverges",
    Trouble.UNCHANGED: "is unchanged",
}


def share(bad: int, numel: int) -> str:
    """ "751 of 24,576 (3.1 %)"."""
    if not numel or not bad:
        return f"{bad:,} of {numel:,}"
    return f"{bad:,} of {numel:,} ({percent(bad, numel)})"


def place(location: Location) -> str:
    """ "loss.py:4:45": the column as editors count it, from 1; "In [4], line 2, column 9"."""
    if location.cell:
        return f"{clean(location.file)}, line {location.line}, column {location.col + 1}"
    return f"{clean(location.file)}:{location.line}:{location.col + 1}"


def scope(location: Location) -> str:
    """ "in Net.forward (module encoder.0)", or nothing at the top of a script."""
    function, module = clean(location.function), clean(location.module or "")
    if function in ("", "<module>"):
        return f"in module {module}" if module else ""
    return f"in {function} (module {module})" if module else f"in {function}"


def inside(finding: Finding) -> list[str]:
    """Where in an installed package the op ran: for the curious, who need no frame of it."""
    return [
        f"{place(one.location).split('site-packages/')[-1]} {scope(one.location)}: {one.message}"
        for one in finding.related
        if one.role == "inner"
    ]


def tensor(found: Symptom) -> str:
    """ "x.grad": what the user would have to print to see the symptom."""
    name = clean(found.tensor)
    if found.subject is Subject.GRADIENT and not name.endswith(".grad"):
        name += ".grad"
    return name


def condition(found: Symptom) -> str:
    if found.trouble is Trouble.ZERO and found.numel and not found.bad:
        return "is nearly 0"
    return _TROUBLES[found.trouble]


def ended(found: Symptom) -> str:
    """ "is no longer NaN"."""
    words = condition(found)
    if words.startswith("is "):
        return words.replace("is ", "is no longer ", 1)
    return f"no longer {words}"


def symptom(found: Symptom) -> str:
    """ "x.grad is NaN at 1 of 5 (20 %)"."""
    words = f"{tensor(found)} {condition(found)}"
    if found.numel < 2 or not found.bad:
        return words
    if found.bad == found.numel:
        return f"{words} at all {found.numel:,}"
    return f"{words} at {share(found.bad, found.numel)}"


def symptoms(found: Sequence[Symptom], limit: int = 3) -> str:
    """The first few, and how many more there are; what is bad in several steps once."""
    words = list(dict.fromkeys(map(symptom, found)))
    more = [f"and {len(words) - limit:,} more"] if len(words) > limit else []
    return "; ".join([*words[:limit], *more])


def links(events: Iterable[Event]) -> tuple[Event, ...]:
    """The chain without repetitions: a formula of five ops at one place is one link."""
    kept: list[Event] = []
    for event in events:
        new = not kept or _spot(kept[-1]) != _spot(event)
        if new or event.kind not in (kept[-1].kind, Kind.PROPAGATION):
            kept.append(event)
    return tuple(kept)


def link(event: Event, before: Event | None = None, home: str | None = None) -> str:
    """ "birth at pow (loss.py:4:45, backward)".

    Propagation is what the arrow says already; the phase is named where it changes, the file
    where it is not `home`.
    """
    if event.branches:
        calls = " and ".join(_branch(one) for one in event.branches)
        return f"sum of the gradients of {calls}"
    words = spelled(clean(event.op))
    if before is None or event.kind is not Kind.PROPAGATION:
        words = f"{event.kind} at {words}"
    location = event.blame.location
    notes = []
    if location is not None:
        near = location.file == home
        notes.append(f"{location.line}:{location.col + 1}" if near else place(location))
    if before is None or before.phase is not event.phase:
        notes.append(event.phase)
    return f"{words} ({', '.join(notes)})" if notes else words


def _branch(call: Call) -> str:
    at = f" ({call.location.line}:{call.location.col + 1})" if call.location is not None else ""
    return f"{spelled(clean(call.op))}{at}"


def chain(finding: Finding) -> list[str]:
    """From the birth to the first symptom, the middle left out where it is long."""
    events = links(finding.chain)
    home = finding.location.file if finding.location else None
    named = [link(event, before, home) for before, event in pairwise((None, *events)) if event]
    if len(named) > LINKS:
        left_out = len(named) - LINKS + 1
        named[LINKS // 2 : LINKS // 2 + left_out] = [f"{left_out} more"]
    return [*named, *(f"{tensor(one)} {condition(one)}" for one in finding.symptoms[:1])]


def offered(fixes: Sequence[Fix]) -> list[Fix]:
    """What was verified first, what was refuted last; the order is kept otherwise."""
    return sorted(fixes, key=lambda fix: {True: 0, None: 1, False: 2}[fix.verified])


def with_shown(findings: Iterable[Finding]) -> Iterator[tuple[Finding, frozenset[str]]]:
    """Each finding with the leading patches of those before it, which a page shows once."""
    shown: frozenset[str] = frozenset()
    for finding in findings:
        yield finding, shown
        fix = leading(finding)
        shown |= {fix.patch} if fix is not None and fix.patch else set()


def leading(finding: Finding) -> Fix | None:
    """The fix to show in full: the first that nothing speaks against."""
    return next((fix for fix in offered(finding.fixes) if fix.verified is not False), None)


def measured(finding: Finding) -> tuple[str, ...]:
    """The numbers of a finding as phrases; from the evidence where the rule worded none."""
    if finding.numbers:
        return finding.numbers
    nothing: tuple[object, ...] = ("", (), [], {})
    measured = finding.evidence.items()
    return tuple(_worded(name, value) for name, value in measured if value not in nothing)


def _spot(event: Event) -> tuple[object, ...]:
    return event.phase, event.op, event.blame.location, event.branches


def _worded(name: str, value: object) -> str:
    match value:
        case dict():
            return ", ".join(_worded(str(key), item) for key, item in value.items())
        case list() | tuple():
            listed = f"[{', '.join(text_of(item) for item in value)}]"
            return f"at {listed}" if name == "index" else f"{name} {listed}"
        case _:
            return f"{name} {text_of(value)}"
