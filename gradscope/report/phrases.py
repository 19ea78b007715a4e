"""The words that every format shares: counts, places, symptoms, the chain, the ending."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from gradscope.facts import (
    Event,
    Finding,
    Fix,
    Kind,
    Location,
    Report,
    Severity,
    Summary,
    Symptom,
    Trace,
    percent,
    plural,
    text_of,
)
from gradscope.report.text import clean

LINKS = 6  # a longer chain is shown by its first and last links

SAFETY = {
    "safe": "the values stay the same",
    "unsafe": "values or training change",
    "display-only": "a direction, not a finished patch",
}

_SYMPTOMS = {
    "nan-loss": "is NaN",
    "inf-loss": "is inf",
    "nan-grad": "is NaN",
    "inf-grad": "is inf",
    "nan-param": "is NaN",
    "inf-param": "is inf",
    "zero-grad": "is 0",
    "none-grad": "is None",
    "wrong-grad": "is wrong",
    "exploding-grad": "explodes",
    "diverging-loss": "diverges",
}

_ENDINGS = {
    "raised": "the program raised",
    "exited": "the program exited",
    "interrupted": "the program was interrupted",
    "died": "the program died",
    "unusable": "the target could not be run",
    "hung": "the program hung",
    "fault": "gradscope itself failed",
}


def share(bad: int, numel: int) -> str:
    """ "751 of 24,576 (3.1 %)"."""
    if not numel or not bad:
        return f"{bad:,} of {numel:,}"
    return f"{bad:,} of {numel:,} ({percent(bad, numel)})"


def place(location: Location) -> str:
    """ "loss.py:4:45": the column as editors count it, from 1."""
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
    if found.kind.endswith("-grad") and not name.endswith(".grad"):
        name += ".grad"
    return name


def condition(found: Symptom) -> str:
    return _SYMPTOMS.get(found.kind, clean(found.kind))


def symptom(found: Symptom) -> str:
    """ "x.grad is NaN at 1 of 5 (20 %)"."""
    words = f"{tensor(found)} {condition(found)}"
    if found.numel < 2 or not found.bad:
        return words
    if found.bad == found.numel:
        return f"{words} at all {found.numel:,}"
    return f"{words} at {share(found.bad, found.numel)}"


def symptoms(found: Sequence[Symptom], limit: int = 3) -> str:
    """The first few, and how many more there are."""
    named = [symptom(one) for one in found[:limit]]
    if len(found) > limit:
        named.append(f"and {len(found) - limit:,} more")
    return "; ".join(named)


def unexplained(report: Report) -> tuple[Symptom, ...]:
    """Symptoms that no finding accounts for: they must not vanish from the report."""
    known = {(one.kind, one.tensor) for finding in report.findings for one in finding.symptoms}
    return tuple(one for one in report.trace.symptoms if (one.kind, one.tensor) not in known)


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
    words = clean(event.op)
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


def leading(finding: Finding) -> Fix | None:
    """The fix to show in full: the first that nothing speaks against."""
    return next((fix for fix in offered(finding.fixes) if fix.verified is not False), None)


def trial(fix: Fix) -> str:
    return {True: "verified", False: "refuted", None: "not tried"}[fix.verified]


def verdict(fix: Fix) -> str:
    """ "verified: the loss is bit-identical", "not tried: the program reads stdin"."""
    words = fix.verdict.strip()
    if not words or words == trial(fix):
        return trial(fix)
    return f"{trial(fix)}: {words.removeprefix(trial(fix) + ': ')}"


def measured(finding: Finding) -> tuple[str, ...]:
    """The numbers of a finding as phrases; from the evidence where the rule worded none."""
    if finding.numbers:
        return finding.numbers
    nothing: tuple[object, ...] = ("", (), [], {})
    measured = finding.evidence.items()
    return tuple(_worded(name, value) for name, value in measured if value not in nothing)


def ending(report: Report) -> str:
    """How the program ended, where that is worth a line."""
    end = report.trace.ending
    words = _ENDINGS.get(end.kind, "")
    if end.kind == "exited":
        words = f"{words} with code {end.code}" if end.code else ""
    if words and end.detail:
        words += f" {end.detail}" if end.kind == "raised" else f": {end.detail}"
    return words


def notes(report: Report) -> tuple[str, ...]:
    """What could not be observed, where no finding (GS902) says so already."""
    told = {finding.message for finding in report.findings}
    return tuple(note for note in report.trace.notes if note.rstrip(".") not in told)


def effort(report: Report) -> str:
    """ "100 steps, 12,345 ops, 1.2 s"."""
    trace = report.trace
    seconds = sum(step.seconds for step in trace.steps)
    return f"{plural(len(trace.steps), 'step')}, {plural(trace.ops, 'op')}, {seconds:.2g} s"


def state(report: Report) -> str:
    """The verdict in one sentence, without the target's name."""
    if report.verdict == "unhealthy":
        return "unhealthy"
    if unexplained(report):
        return f"not healthy, and no rule knows why: {symptoms(unexplained(report))}"
    if report.trace.ending.kind in ("unusable", "hung", "fault"):
        return f"failed: {ending(report)}"
    if report.verdict == "failed":
        return f"failed before an error was found in its gradients: {ending(report)}"
    if not report.trace.steps:
        return "not judged: no backward pass ran"
    stopped = report.trace.ending.kind == "stopped"
    if report.accepted:
        words = f"healthy but for {plural(report.accepted, 'accepted finding')}"
        return f"{words}, where the run stopped; keep-going goes further" if stopped else words
    if stopped:
        return (
            "healthy so far: every loss and gradient was finite until the program was stopped;"
            " --steps N goes further"
        )
    finite = "every loss and gradient was finite"
    if report.trace.ending.kind == "interrupted":
        return f"healthy so far: {finite} until the program was interrupted"
    return f"healthy: {finite}"


def tally(report: Report) -> str:
    """ "2 errors, 1 warning, 1 note; 2 of 3 fixes verified"."""
    severities = [finding.severity for finding in report.findings]
    counts = [plural(severities.count(one), one) for one in Severity if one in severities]
    tried = [fix.verified for finding in report.findings for fix in finding.fixes]
    words = ", ".join(counts)
    if tried:
        words += f"; {tried.count(True)} of {plural(len(tried), 'fix', 'fixes')} verified"
    return words


def summary(report: Report) -> str:
    """The closing line."""
    counts = tally(report)
    ran = effort(report)
    return f"{clean(report.target)}: {state(report)} ({f'{counts}; {ran}' if counts else ran})"


_FATES = ("healthy", "unhealthy", "failed", "interrupted", "not judged")


def verdicts(reports: Sequence[Report]) -> str:
    """ "12 targets: 9 healthy, 1 unhealthy, 1 failed, 1 interrupted"."""
    found = [_fate(report) for report in reports]
    counts = [f"{found.count(word):,} {word}" for word in _FATES if word in found]
    return f"{plural(len(found), 'target')}: {', '.join(counts)}" if found else "no target"


def _fate(report: Report) -> str:
    """The verdict; in words of its own where nothing bad was seen for want of looking."""
    if report.verdict != "healthy":
        return report.verdict
    if report.trace.ending.kind == "interrupted":
        return "interrupted"
    return "healthy" if report.trace.steps else "not judged"


def closing(whole: Summary) -> str:
    """The last line of a check."""
    everything = Report("", Trace(""), whole.all_findings)
    counts = tally(everything)
    return f"{verdicts(whole.reports)} ({counts})" if counts else verdicts(whole.reports)


def outcome(report: Report) -> str:
    """What became of one target among several, in a few words."""
    if report.verdict == "failed":
        return ending(report)
    accepted = plural(report.accepted, "accepted finding") if report.accepted else ""
    told = "; ".join(filter(None, (tally(report), accepted)))
    return told or ("" if report.trace.steps else "no backward pass ran")


def needs_words(report: Report) -> bool:
    """Whether one line is not enough for a target among several."""
    return bool(
        report.findings or report.verdict == "failed" or unexplained(report) or ending(report)
    )


def _spot(event: Event) -> tuple[object, ...]:
    return event.phase, event.op, event.blame.location


def _worded(name: str, value: object) -> str:
    match value:
        case dict():
            return ", ".join(_worded(str(key), item) for key, item in value.items())
        case list() | tuple():
            listed = f"[{', '.join(text_of(item) for item in value)}]"
            return f"at {listed}" if name == "index" else f"{name} {listed}"
        case _:
            return f"{name} {text_of(value)}"
