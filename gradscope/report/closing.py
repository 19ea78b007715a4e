"""The words about a run as a whole, about the ranks that made it, and about a check of several: the
verdict, the closing line."""

from collections.abc import Iterable, Iterator, Sequence

from gradscope.facts import (
    Ending,
    Fate,
    Hurdle,
    Origin,
    Ranked,
    Replay,
    Report,
    Severity,
    Share,
    Summary,
    Trace,
    plural,
)
from gradscope.report.printable import clean
from gradscope.report.sentences import symptoms
from gradscope.report.trials import times

# What each verdict looks like.
ROLES = {"healthy": "good", "incomplete": "warning", "unhealthy": "error", "failed": "error"}

_ENDINGS = {
    "raised": "the program raised",
    "exited": "the program exited",
    "interrupted": "the program was interrupted",
    "died": "the program died",
    "unusable": "the target could not be run",
    "hung": "the program hung",
    "fault": "gradscope itself failed",
}


def no_cause(report: Report) -> str:
    """ "no finding explains x.grad is NaN at 1 of 5 (20 %)"; empty where all is explained."""
    found = report.unexplained
    return f"no finding explains {symptoms(found)}" if found else ""


def ending(report: Report) -> str:
    """How the program ended, where that is worth a line."""
    end = report.trace.ending
    words = _ENDINGS["raised"] if end.kind == "raised" else ending_in_short(report)
    if words and end.detail:
        words += f" {end.detail}" if end.kind == "raised" else f": {end.detail}"
    return words


def ending_in_short(report: Report) -> str:
    """The same in short, for the closing line."""
    end = report.trace.ending
    words = _ENDINGS.get(end.kind, "")
    if end.kind == "raised":
        return f"{words} {end.detail.partition(':')[0]}"
    if end.kind == "exited":
        return f"{words} with code {end.code}" if end.code else ""
    return words


def notes(report: Report) -> tuple[str, ...]:
    """What could not be observed, where no finding (GS902) says so, and what was left out."""
    messages = {finding.message for finding in report.findings}
    unseen = (note for note in report.trace.notes if note.rstrip(".") not in messages)
    return (*unseen, *(f"not checked: {one.what} ({one.why})" for one in report.not_checked))


def effort(report: Report) -> str:
    """ "100 steps watched, 9 of them in full, 12,345 ops, 1.2 s", and how often the program was run
    for it."""
    trace = report.trace
    seconds = report.duration
    spent = f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}"
    done = plural(len(trace.steps) + trace.unseen, "step")
    if trace.updates and trace.updates + 1 < len(trace.steps):  # gradients are added up
        done = f"{len(trace.steps):,} backward passes for {plural(trace.updates, 'step')}"
    if 0 < trace.inspected < len(trace.steps):
        done += f" watched, {trace.inspected} of them in full"
    if trace.unseen:
        done += f", the last {trace.unseen:,} unseen"
    words = f"{done}, {plural(trace.ops, 'op')}, {spent} s"
    if report.runs > 1:
        words += f"; ran your program {times(report.runs)}"
    words += _repeated(report.replay)
    sent = ", ".join(trace.ending.signals)
    return f"{words}; it was sent {sent}" if sent else words


_HURDLES = {
    Hurdle.PROCESSES: "it starts processes of its own",
    Hurdle.SHARED: "it holds what two processes cannot share",
    Hurdle.THREADS: "it has threads of its own",
    Hurdle.MEMORY: "there is too little memory for a copy of it",
}


def _repeated(replay: Replay | None) -> str:
    """ "; replayed from step 41, losses identical"."""
    if replay is None:
        return ""
    losses = {True: ", losses identical", False: ", losses differ", None: ""}[replay.identical]
    if replay.origin is not Origin.START:
        return f"; replayed from step {replay.step}{losses}"
    since = _HURDLES[replay.hurdle] if replay.hurdle is not None else ""
    words = f"; replayed from the start, since {since}" if since else ""
    return words if replay.identical is not False else words + losses


def state(report: Report) -> str:
    """The verdict in one sentence, without the target's name."""
    if report.undiagnosed:
        shown = f", which shows {symptoms(report.trace.symptoms)}" if report.trace.symptoms else ""
        return f"interrupted before the cause was looked for in its run{shown}"
    if report.unexplained and not report.has(Severity.ERROR):
        return f"not healthy, and no rule knows why: {symptoms(report.unexplained)}"
    if report.verdict == "unhealthy":
        return "unhealthy"
    if report.trace.ending.kind in ("unusable", "hung", "fault"):
        return f"failed: {ending_in_short(report)}"
    if report.verdict == "failed":
        return f"failed before an error was found in its gradients: {ending_in_short(report)}"
    if not report.trace.steps:
        return "not judged: no backward pass ran"
    accepted = plural(report.accepted, "accepted finding") if report.accepted else ""
    finite = "every loss and gradient was finite"
    if report.trace.nan_reads or report.trace.unseen_read:
        finite = "what training uses was finite, and not all that the program reads"
    end = report.trace.ending
    if report.verdict == "incomplete":
        seen = f"nothing but {accepted} was seen" if accepted else finite
        return f"incomplete: {seen} until {ended_by(end)}"
    if accepted:
        further = ", where the run stopped; --keep-going goes further"
        return f"healthy but for {accepted}{further if end.kind == 'stopped' else ''}"
    return f"healthy: {finite}"


def shortfall(report: Report) -> str:
    """The state of a run that was not seen to its end; empty for others."""
    return state(report) if report.verdict == "incomplete" else ""


def ended_by(end: Ending) -> str:
    """What ended a run that might have gone on."""
    return f"{end.detail} ended it{'; --steps N goes further' if end.kind == 'stopped' else ''}"


def tally(report: Report) -> str:
    """ "2 errors, 1 warning, 1 note; 2 of 3 fixes verified"."""
    severities = [finding.severity for finding in report.findings]
    found = [plural(severities.count(one), one) for one in Severity if one in severities]
    tried = [fix.verified for finding in report.findings for fix in finding.fixes]
    words = ", ".join(found)
    if tried:
        words += f"; {tried.count(True)} of {plural(len(tried), 'fix', 'fixes')} verified"
    return words


def counts(report: Report) -> str:
    """The tally of findings, and the effort of the run."""
    return "; ".join(filter(None, (tally(report), effort(report))))


def summary(report: Report) -> str:
    """The closing line."""
    return f"{clean(report.target)}: {state(report)} ({counts(report)})"


_FATES = ("healthy", "unhealthy", "failed", "incomplete", "not judged")


def verdicts(reports: Sequence[Report]) -> str:
    """ "12 targets: 9 healthy, 1 unhealthy, 1 failed, 1 incomplete"."""
    found = [_fate(report) for report in reports]
    counts = [f"{found.count(word):,} {word}" for word in _FATES if word in found]
    return f"{plural(len(found), 'target')}: {', '.join(counts)}" if found else "no target"


def _fate(report: Report) -> str:
    """The verdict; in words of its own where nothing bad was seen for want of looking."""
    looked = report.trace.steps or report.verdict != "healthy"
    return report.verdict if looked else "not judged"


def of_all(whole: Summary) -> str:
    """The last line of a check."""
    everything = Report("", Trace(""), whole.all_findings)
    found = tally(everything)
    return f"{verdicts(whole.reports)} ({found})" if found else verdicts(whole.reports)


def outcome(report: Report) -> str:
    """What became of one target among several, in a few words."""
    if report.verdict == "failed":
        return ending(report)
    accepted = plural(report.accepted, "accepted finding") if report.accepted else ""
    early = ended_by(report.trace.ending) if report.verdict == "incomplete" else ""
    parts = "; ".join(filter(None, (tally(report), accepted, early)))
    return parts or ("" if report.trace.steps else "no backward pass ran")


def needs_words(report: Report) -> bool:
    """Whether one line is not enough for a target among several."""
    return bool(
        report.findings or report.verdict == "failed" or report.unexplained or ending(report)
    )


_ABOUT = {
    Fate.BORN: "where it went wrong first",
    Fate.BAD: "whose values are bad",
    Fate.RECEIVED: "to which bad values came",
    Fate.RAISED: "which ended first",
    Fate.EXITED: "which ended first",
    Fate.DIED: "which died",
    Fate.HUNG: "which did not come where the others waited for it",
}
_BECAME = {
    Fate.BORN: "found {rule} too",
    Fate.BAD: "had bad values after that",
    Fate.RECEIVED: "got bad values by a collective",
    Fate.RAISED: "raised {detail}",
    Fate.EXITED: "exited: {detail}",
    Fate.DIED: "died: {detail}",
    Fate.HUNG: "did not come either",
    Fate.CALLED_OFF: "waited for it in vain",
    Fate.CUT_SHORT: "ended with {detail}",
    Fate.HEALTHY: "came to its end, after {step} backward passes",
    Fate.GONE: "gave no answer any more",
}


def rank_remarks(ranks: Ranked) -> tuple[str, ...]:
    """A line about the rank, and one for each thing that became of others."""
    own, count = ranks.own, ranks.count
    if own.fate not in _ABOUT:
        if all(_is_like(one, own) for one in ranks.others):
            return (f"{count} ranks, all alike: this is rank {ranks.rank}",)
        about = f"this is rank {ranks.rank} of {count}"
    else:
        where = f"{_about(own, ranks.others)}, at step {own.step}"
        about = f"this is rank {ranks.rank} of {count}, {where}"
    return (about, *_rest(ranks.others))


def _is_like(one: Share, other: Share) -> bool:
    """Whether nothing tells the ends of two ranks apart. With uneven inputs they differ in steps;
    those that were ended from outside do so by chance."""
    by_itself = one.fate is Fate.HEALTHY
    alike = (one.fate, one.warnings) == (other.fate, other.warnings)
    return alike and not (by_itself and one.step != other.step)


def _about(own: Share, others: Iterable[Share]) -> str:
    over = (one for one in others if one.fate is Fate.HEALTHY and one.order < own.order)
    if own.fate is Fate.RAISED and own.waits and any(over):
        return "which waited for one that was over"  # with fewer batches, say
    return _ABOUT[own.fate]


def _rest(others: Iterable[Share]) -> Iterator[str]:
    """ "ranks 0, 2 and 3 got bad values by a collective, at train.py:24"."""
    ranks_by_end: dict[str, list[int]] = {}
    for one in others:
        ranks_by_end.setdefault(_became(one), []).append(one.rank)
    for words, ranks in ranks_by_end.items():
        yield f"{_listed(ranks)} {words}"


def _became(share: Share) -> str:
    words = _BECAME[share.fate].format(
        rule=share.rule or "an error", detail=share.detail, step=share.step
    )
    at = share.location
    return f"{words}, at {at}" if at is not None else words


def _listed(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}"
