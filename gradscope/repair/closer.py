"""A step that went wrong while it was only watched: the program runs again, and it is looked at."""

from collections.abc import Iterable
from dataclasses import replace

from gradscope.facts import OTHERS, Kind, NanRead, NotChecked, Subject, Trace, Unexamined, refusals
from gradscope.repair.again import FAILURES, Again, failure_text
from gradscope.report.status import Doing

_LATEST = 2  # steps before the last one of a run, of which each is tried to look at from there on
_LED_TO = {
    Subject.LOSS: "the bad loss",
    Subject.GRADIENT: "the bad gradient",
    Subject.PARAMETER: "the bad parameter",
    Subject.VALUE: "the bad value",
    Subject.SENT: "the bad value",
    None: "the end of the program",
}
# What was seen, the way to make that run again, and what was not looked at, with why.
Closer = tuple[Trace, Again, tuple[NotChecked, ...]]


def look_closer(seen: Trace, again: Again) -> Closer:
    """What a run showed, in full where it went wrong, where its gradient leapt, or where it read a
    NaN."""
    seen, again, left = _where_it_broke(seen, again)
    idle = bool(again.budget.interrupted or left)
    surged = _together(again, seen.surged, idle)
    if surged is not None:
        seen, again, left = _where_it_surged(seen, again, surged)
    idle = bool(seen.symptoms or again.budget.interrupted or left)
    read = _together(again, seen.unseen_read.step if seen.unseen_read else None, idle)
    return _where_it_read(seen, again, read) if read is not None else (seen, again, left)


def _together(again: Again, step: int | None, idle: bool) -> int | None:
    """The step to look at: of several ranks the earliest, since all of them run or none. One that
    is `idle` has no use for it, or cannot run."""
    if again.ranks is None or again.ranks.leads:
        return None if idle else step
    return again.ranks.first_step(step, idle)


def _where_it_read(seen: Trace, again: Again, step: int) -> Closer:
    """With what the ops before a read show: the rest is as it was seen."""
    read, found = seen.unseen_read, _in_full(again, Unexamined(step, step, None))
    if read is None:
        return seen, again, ()
    if isinstance(found, str):
        place = read.location
        what = f"that {place} reads" if place else f"in `{read.held_as}`"
        return seen, again, (NotChecked(f"where the NaN came from {what}", found),)
    reads = _once_each((*seen.nan_reads, *found.nan_reads))
    unseen = read if reads or read.location is not None else None  # what is held may be meant so
    return replace(seen, nan_reads=reads, unseen_read=unseen), again, ()


def _once_each(reads: Iterable[NanRead]) -> tuple[NanRead, ...]:
    """One for each place where a NaN began: that it was read out says more than that it is kept."""
    found: dict[object, NanRead] = {}
    for one in sorted(reads, key=lambda read: not read.times):
        found.setdefault((one.event.op, one.event.blame.location), one)
    return tuple(found.values())


def _where_it_surged(seen: Trace, again: Again, step: int) -> Closer:
    """With the ops that made the gradient of the step so large: the rest is as it was seen."""
    found = _in_full(again, Unexamined(step, step, None))
    if isinstance(found, str):
        return seen, again, (NotChecked(f"what made the gradient leap at step {step}", found),)
    if not found.magnitudes.leaps:
        return seen, again, ()
    leaps = tuple(dict.fromkeys((*seen.magnitudes.leaps, *found.magnitudes.leaps)))
    first = replace(seen, magnitudes=replace(seen.magnitudes, leaps=leaps))
    options = replace(again.options, full_from=step)
    return first, replace(again, first=first, options=options), ()


def _where_it_broke(seen: Trace, again: Again) -> Closer:
    """In full where a value broke that was only watched.

    For a bad value this takes as long as the program did until then, for a program that only gave
    up at most as long as fixes may be tried.
    """
    at, hurry = seen.unexamined, again.budget.interrupted
    if again.ranks is not None and not again.ranks.leads:
        # The bad value of one may come from another, whose step is looked at as well.
        at = again.ranks.earliest(again.ranks.share(seen, interrupted=hurry))
    if at is None or hurry:
        return seen, again, ()
    found = _in_full(again, at, unlimited=at.subject is not None)
    if seen.symptoms and not isinstance(found, str) and not found.symptoms:
        at, found = _as_late_as_may_be(again, at) or (at, found)
    if isinstance(found, str):
        return seen, again, _left(at, found)
    if found.ending.kind == "interrupted":
        if found.ending.detail == OTHERS:
            return replace(seen, events=found.events, sent=found.sent), again, ()
        return seen, again, _left(at, f"{found.ending.detail} ended the second run")
    ends = [(one.ending.kind, one.ending.location) for one in (seen, found)]
    if at.subject is None and ends[0] != ends[1]:
        return seen, again, _left(at, "the program, run again, did not end in the same way")
    if seen.symptoms and not found.symptoms:
        if found.compiled is not None and found.compiled.left_out:
            return replace(seen, unexamined=replace(at, only_compiled=True)), again, ()
        return seen, again, _left(at, "the program, run again, did not show it a second time")
    if at.since and _began_before(found):
        older = replace(at, since=0)
        began = _in_full(again, older)
        if not isinstance(began, str) and (began.symptoms or began.refusal):
            at, found = (at, found) if _began_before(began) else (older, began)
    kept = replace(
        found, ending=seen.ending, effects=seen.effects, processes=seen.processes, unexamined=None
    )
    options = replace(again.options, full_from=at.since)
    return kept, replace(again, first=kept, options=options), ()


def _began_before(found: Trace) -> bool:
    """Whether the bad value came from outside of the steps that were looked at, and from no sample
    of a DataLoader's: a state that nobody watches may have been bad for long. Or backward met a
    part of a graph that was used up before them."""
    refusal = found.refusal
    if isinstance(refusal, refusals.GraphFreed) and refusal.shared.made is None:
        return True
    outside = [one for one in found.events if one.kind is Kind.SOURCE and one.sample is None]
    return bool(outside) and not _shows_birth(found)


def _shows_birth(found: Trace) -> bool:
    return any(one.kind is Kind.BIRTH for one in found.events)


def _as_late_as_may_be(again: Again, at: Unexamined) -> tuple[Unexamined, Trace] | None:
    """A look at fewer steps, which shows where the bad value was born, and those. Where it rounds
    otherwise, what hangs on the last digits comes to pass no more in the steps after it."""
    for since in range(at.step, max(at.since, at.step - _LATEST), -1):
        late = replace(at, since=since)
        found = _in_full(again, late, unlimited=at.subject is not None)
        if isinstance(found, str):
            return None
        if found.symptoms and _shows_birth(found):
            return late, found
    return None


def _in_full(again: Again, at: Unexamined, *, unlimited: bool = False) -> Trace | str:
    """The run once more, for at most as long as fixes may be tried; or why there is none."""
    again.stages.begin(Doing.REPLAYING)
    try:
        return again.in_full(at, None if unlimited else again.budget.seconds)
    except FAILURES as failure:
        return failure_text(failure)
    except KeyboardInterrupt:
        again.budget.interrupt()
        return "interrupted"


def _left(at: Unexamined, why: str) -> tuple[NotChecked, ...]:
    return (NotChecked(f"the ops that led to {_LED_TO[at.subject]} at step {at.step}", why),)
