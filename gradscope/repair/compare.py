"""Two runs side by side: did the patch do what it claims, and nothing else? Pure functions."""

from collections.abc import Sequence
from dataclasses import replace

from gradscope.dataclass import dataclass
from gradscope.facts import (
    Fate,
    Finding,
    NotTried,
    Phase,
    Reason,
    Refuted,
    Severity,
    Subject,
    Symptom,
    Trace,
    Trouble,
    Verdict,
    Verified,
    verdicts,
)
from gradscope.facts import requests as ask
from gradscope.repair.differences import (
    breaks,
    has_finite_loss,
    is_rounding,
    loss_of,
    moved,
    pairs,
    total_norm,
    unchanged,
)
from gradscope.rules.order import is_wrong_gradient
from gradscope.signals import known_signals

BOUNDS = frozenset(("epsilon", "clamp-domain"))
HOLD_OFF = BOUNDS | {"masked-branch"}
EMPTY = "guard-empty"
SCALED = "loss-scaling"  # which makes a loss thousands of times as large
# What puts a value of its own in the place of those that broke.
PUTS_VALUES = HOLD_OFF | {EMPTY}
# Fixes of a single computation; what the others change works over many steps.
LOCAL = PUTS_VALUES | {"stable-op", "dtype", "backward-rewrite"}
# A program that these end was ended by somebody else: the machine, a batch system, a user.
_FROM_OUTSIDE = {-one for one in known_signals("SIGKILL SIGTERM SIGHUP SIGXCPU")}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`doubtful` asks for a control run: values differ, which a program that cannot be repeated
    would also explain."""

    verdict: Verdict
    doubtful: bool = False
    # The next culprit, where the patch did away with its own; of one that is verified the same
    # mistake, made once more in the function.
    remains: Finding | None = None

    @property
    def holds(self) -> bool:
        return isinstance(self.verdict, Verified)


@dataclass(frozen=True, slots=True)
class Seen:
    """One run and what the rules made of it."""

    trace: Trace
    findings: tuple[Finding, ...]


def last_step(finding: Finding) -> int:
    """The step that has to be reached: the last one in which this finding hurt."""
    if is_wrong_gradient(finding):
        return finding.step  # it is measured again there; what came of it later need not be
    return max([finding.step, *(symptom.step for symptom in finding.symptoms)])


def acting(finding: Finding, kind: str) -> range:
    """The steps in which a fix of that kind has to be at work: up to the last one, and from the
    first in which anything of the finding broke, where the fix changes no more than what breaks.
    """
    stop = last_step(finding) + 1
    if kind not in LOCAL or not (finding.chain or is_wrong_gradient(finding)):
        return range(stop)
    broke = (*(event.step for event in finding.chain), *(one.step for one in finding.symptoms))
    return range(min(finding.step, *broke), stop)


def compare(finding: Finding, before: Seen, after: Seen, *, same: bool, kind: str = "") -> Outcome:
    """What the run with a patch shows about a finding of the run without it.

    `same`: the patch claims that losses and finite gradients are bit-identical. `kind` is that
    of the fix.
    """
    step = last_step(finding)
    if (there := _on_another_rank(after.trace, step)) is not None:
        return _refuted(there)
    if (failed := _failure(finding, before.trace, after.trace, step)) is not None:
        is_next = after.trace.refusal or _raises_elsewhere(before.trace, after.trace)
        return replace(failed, remains=next(iter(_errors(after)), None)) if is_next else failed
    remaining = _same_cause(finding, before, after)
    updates = {update.step for update in after.trace.magnitudes.updates}
    if remaining is not None and kind == "clip-norm" and step not in updates:
        return Outcome(NotTried(Reason.NO_UPDATE))
    if remaining is not None:
        elsewhere = remaining if is_another(remaining, finding) else None
        return _refuted(verdicts.CauseRemains(cause_of(remaining)), elsewhere)
    if (beside := _of_the_same_loss(finding, after)) is not None:
        return _refuted(verdicts.CauseRemains(cause_of(beside)), beside)
    if fresh := _new_findings(before, after, kind):
        return _refuted(verdicts.CauseAppears(cause_of(fresh[0])), fresh[0])
    theirs = _of_others(finding, before, after)
    if (left := _left(finding, after, step, theirs)) is not None:
        other = next((other for other in after.findings if left in other.symptoms), None)
        return _refuted(verdicts.SymptomRemains(left, cause_of(other) if other else None), other)
    if (unexplained := _unexplained(before, after, step)) is not None:
        return _refuted(verdicts.SymptomAppears(unexplained))
    worse = next((a.name for a, b in pairs(before.trace, after.trace) if breaks(a, b)), None)
    if worse is not None:
        return _refuted(verdicts.GradientBreaks(worse))
    if (unhealed := _unhealed(finding, after.trace, step)) is not None:
        return _refuted(verdicts.SymptomRemains(unhealed))
    moves = moved(before.trace, after.trace, step)
    if same and moves and not is_rounding(before.trace, after.trace, step):
        return _refuted(verdicts.ValuesMove(moves[0]))
    # A finite loss that is bit-identical vouches for the second run having been the same run.
    vouched = not moves and has_finite_loss(before.trace, step)
    left_over = [one for one in _errors(after) if not _comes_later(one, before.trace)]
    effects = _effects(finding, before.trace, after, kind, moves, theirs, left_over)
    twin = next((one for one in left_over if _key(one) == _key(finding)), None)
    return Outcome(Verified(effects), doubtful=not vouched, remains=twin)


def _raises_elsewhere(before: Trace, after: Trace) -> bool:
    """Whether an op has raised that the first run did not come to, or that did not raise there."""
    first, second = before.raised, after.raised
    if second is None or (first is None and before.ending.gave_up):
        return False
    return first is None or first.call.location != second.call.location


def _on_another_rank(after: Trace, step: int) -> verdicts.Objection | None:
    """What went wrong there up to that step."""
    for other in after.others:
        for symptom in other.symptoms:
            if symptom.step <= step:
                return verdicts.SymptomAppears(symptom)
        if other.fate is Fate.RAISED:
            return verdicts.ProgramEnds(other.detail)
    return None


def _refuted(by: verdicts.Objection, remains: Finding | None = None) -> Outcome:
    return Outcome(Refuted(by), doubtful=True, remains=remains)


def _errors(after: Seen) -> list[Finding]:
    return [one for one in after.findings if one.severity is Severity.ERROR]


def _effects(
    finding: Finding,
    before: Trace,
    after: Seen,
    kind: str,
    moves: tuple[verdicts.Move, ...],
    theirs: set[Symptom],
    left_over: Sequence[Finding],
) -> verdicts.Effects:
    step = last_step(finding)
    of_loss = (one.step for one in finding.symptoms if one.subject is Subject.LOSS)
    shown = max(of_loss, default=step)  # gradients stay bad in the passes that add to them
    first, second = loss_of(before, shown), loss_of(after.trace, shown)
    finite = after.trace.gradients and not any(one.bad for one in after.trace.gradients)
    return verdicts.Effects(
        change=_change(finding, after.trace, kind, theirs),
        loss=(first, second) if first is not None and second is not None else None,
        gradient_norm=total_norm(after.trace.gradients) if finite else None,
        unchanged=unchanged(before, after.trace),
        moves=moves,
        remains=cause_of(left_over[0]) if left_over else None,
    )


def _failure(finding: Finding, before: Trace, after: Trace, step: int) -> Outcome | None:
    """The second run did not get as far as the first."""
    ending = after.ending
    if ending.kind == "interrupted":
        return Outcome(NotTried(Reason.ENDED_EARLY))
    if len(after.steps) > step:
        return None
    if ending.gave_up:
        is_alike = before.ending.kind == ending.kind and before.ending.detail == ending.detail
        is_of_it = before.raised is not None and before.raised.call.location == finding.location
        is_of_it |= _is_of_refusal(finding, before)
        of_values = any(one.subject is Subject.VALUE for one in before.symptoms)
        if is_alike and not (is_of_it or of_values):
            return None  # it is about something else
        if ending.kind == "died" and ending.code in _FROM_OUTSIDE:
            return Outcome(NotTried(Reason.KILLED, ending.detail))
        if ending.out_of_memory:
            return Outcome(NotTried(Reason.MEMORY, ending.detail))
        return _refuted(verdicts.ProgramEnds(ending.detail))
    if len(after.steps) >= len(before.steps):
        return None
    return Outcome(NotTried(Reason.ENDED_EARLY))


def _is_of_refusal(finding: Finding, before: Trace) -> bool:
    """Whether it is about the exception itself: nothing had broken, the program came no further."""
    refusal, is_backward = before.refusal, finding.phase is Phase.BACKWARD
    is_all = is_backward and not (finding.symptoms or finding.chain)
    return is_all and refusal is not None and refusal.step == finding.step


def is_another(remaining: Finding, finding: Finding) -> bool:
    """Whether what is left stands elsewhere, or comes of another parameter."""
    learnt, asked = (
        {fix.request for fix in one.fixes if isinstance(fix.request, ask.LearnLogarithm)}
        for one in (remaining, finding)
    )
    return _start(remaining) != _start(finding) or not learnt <= asked


def is_back(finding: Finding, before: Seen, ahead: Seen) -> Finding | None:
    """The finding, where it comes again in the steps after the failing one; or one that asks for
    the same of another place, to which a program that was refused had not come."""
    left = _same_cause(finding, before, ahead)
    if left is not None and left.step > last_step(finding):
        return left
    if before.trace.refusal is None:
        return None
    asked = {type(fix.request) for fix in finding.fixes if fix.request is not None}
    alike = (one for one in _errors(ahead) if asked & {type(fix.request) for fix in one.fixes})
    return next(alike, None)


def _same_cause(finding: Finding, before: Seen, after: Seen) -> Finding | None:
    """The finding, if it is still there: the same rule and op in the same function; of several of
    these the one whose expression is as wide, since a patch of another one leaves that."""
    twins = [other for other in before.findings if _key(other) == _key(finding)]
    left = [
        other
        for other in after.findings
        # One that has become a warning is under control: a growth whose steps are clipped.
        if _key(other) == _key(finding) and other.severity is finding.severity
    ]
    for mark in (_names, _span):
        own = [other for other in left if mark(other) == mark(finding)]
        if own and len(own) >= sum(mark(other) == mark(finding) for other in twins):
            return own[0]
    return left[0] if len(left) >= len(twins) and left else None


def _of_the_same_loss(finding: Finding, after: Seen) -> Finding | None:
    """Another place at which the loss is made of pairs as well: with one of them mended it is still
    another loss than the one that was meant."""
    if not _asks(finding, ask.MatchShapes):
        return None
    return next((one for one in after.findings if _asks(one, ask.MatchShapes)), None)


def _asks(finding: Finding, request: type[ask.Request]) -> bool:
    return any(isinstance(fix.request, request) for fix in finding.fixes)


def _names(finding: Finding) -> tuple[tuple[str, str | None], ...]:
    """What it reads: of two in one line that tells which is left."""
    return tuple((one.role, one.name) for one in finding.tensors)


def _span(finding: Finding) -> tuple[int, ...] | None:
    at = finding.location
    return (at.end_line - at.line, at.col, at.end_col) if at is not None else None


def _new_findings(before: Seen, after: Seen, kind: str) -> list[Finding]:
    known = {_key(finding) for finding in before.findings}
    places = {_place(finding) for finding in before.findings}
    return [
        finding
        for finding in _errors(after)
        if _key(finding) not in known
        and not (_place(finding) in places and finding.step > max(f.step for f in before.findings))
        and not _was_dead(finding, before.trace, len(after.trace.steps), kind)
    ]


def _was_dead(finding: Finding, before: Trace, steps: int, kind: str) -> bool:
    """Whether a finding is about gradients that did not come in the first run either, in as many
    steps: it, or the second one, ended too early for that to be told."""
    alive = {leaf.name for leaf in before.magnitudes.leaves if any(leaf.norms[:steps])}
    lost = _without_gradient(finding)
    if not alive:
        # None was measured. A layer that no loss reads is no work of a patch of values, and what is
        # flat no work of one of the graph.
        is_flat = any(one.trouble is not Trouble.NONE for one in finding.symptoms)
        return bool(lost) and (kind == "graph" or not is_flat)
    return bool(lost) and not alive & lost


def _comes_later(finding: Finding, before: Trace) -> bool:
    """Whether the gradients that a finding misses have come in the first run, further on."""
    alive = {leaf.name for leaf in before.magnitudes.leaves if any(leaf.norms)}
    lost = _without_gradient(finding)
    return bool(lost) and lost <= alive


def _without_gradient(finding: Finding) -> set[str]:
    kinds = (Trouble.NONE, Trouble.ZERO)
    return {one.tensor for one in finding.symptoms if one.trouble in kinds}


def _key(finding: Finding) -> tuple[object, ...]:
    """What names a finding in both runs; lines shift under a patch."""
    return finding.rule, finding.op, *_place(finding)


def _place(finding: Finding) -> tuple[object, ...]:
    location = finding.location
    return (location.file, location.function, location.module) if location else (None,)


def cause_of(finding: Finding) -> verdicts.Cause:
    line = finding.location.line if finding.location else None
    return verdicts.Cause(finding.rule, finding.name, line)


def _of_others(finding: Finding, before: Seen, after: Seen) -> set[Symptom]:
    """Wrong gradients of other functions that the second run shows as well: their inputs may be
    called alike."""
    known = {_key(one) for one in before.findings} - {_key(finding)}
    others = (one for one in after.findings if _key(one) in known and is_wrong_gradient(one))
    return {symptom for one in others for symptom in one.symptoms}


def _left(finding: Finding, after: Seen, step: int, theirs: set[Symptom]) -> Symptom | None:
    """A symptom of the finding that the second run shows as well, or says that it has."""
    had = {_subject(symptom) for symptom in finding.symptoms}
    shown = (one for one in after.trace.symptoms if one.step <= step and one not in theirs)
    later = (one for other in after.findings for one in other.symptoms)
    still = (one for one in later if one.trouble is Trouble.UNCHANGED)
    return next((one for one in (*shown, *still) if _subject(one) in had), None)


def _unhealed(finding: Finding, after: Trace, step: int) -> Symptom | None:
    """A gradient that is bad still, where the second run ended before anybody could take it."""
    bad = {(Subject.GRADIENT, one.name) for one in after.gradients if one.bad}
    return next(
        (one for one in finding.symptoms if one.step == step and _subject(one) in bad), None
    )


def _unexplained(before: Seen, after: Seen, step: int) -> Symptom | None:
    """A bad value of the second run that the first did not have."""
    had = {_subject(symptom) for symptom in before.trace.symptoms}
    return next(
        (s for s in after.trace.symptoms if s.step <= step and _subject(s) not in had), None
    )


def _subject(symptom: Symptom) -> tuple[Subject, str]:
    """What is bad, whether by NaN or by inf."""
    return symptom.subject, symptom.tensor


def _start(finding: Finding) -> tuple[int, int] | None:
    """Where an expression begins: a repair inside it leaves that as it was."""
    return (finding.location.line, finding.location.col) if finding.location else None


def _change(
    finding: Finding, after: Trace, kind: str, theirs: set[Symptom]
) -> verdicts.Change | None:
    """What the finding's first symptom was, and is; that of a loss is told by its value."""
    if not finding.symptoms or _subject(finding.symptoms[0])[0] == "loss":
        return None
    first = finding.symptoms[0]
    own = (one for one in after.symptoms if one not in theirs)
    now = next((one for one in own if _subject(one) == _subject(first)), None)
    others = len(finding.symptoms) - 1
    return verdicts.Change(first, now.bad if now else 0, others, bounded=kind == "clip-norm")
