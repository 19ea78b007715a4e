"""Two runs side by side: did the patch do what it claims, and nothing else? Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.diagnose import is_wrong_gradient
from gradscope.facts import Finding, Gradient, Severity, Symptom, Trace, number, plural, text_of

BOUNDS = frozenset(("epsilon", "clamp-domain"))
HOLD_OFF = BOUNDS | {"masked-branch"}
# Of bounds and wider dtypes: they hold, and something better is sought.
IDLE = "every gradient is exactly 0 then"
HUGE = "which is huge for this loss"
_LEAP = 1e6  # times the losses before, or 1: what is left of a division by an eps
ROUNDING = 2.0**-20  # of the largest element: a sum of a few float32 terms in another order
BETWEEN = 5e-324  # gradients that differ, but not at the elements that were sampled


@dataclass(frozen=True, slots=True)
class Outcome:
    """`verified` as in `Fix`. `doubtful` asks for a control run: values differ, which a program
    that cannot be repeated would also explain."""

    verified: bool | None
    verdict: str
    doubtful: bool = False
    remains: Finding | None = None  # the next culprit, where the patch did away with its own


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


def compare(finding: Finding, before: Seen, after: Seen, *, same: bool, kind: str = "") -> Outcome:
    """What the run with a patch shows about a finding of the run without it.

    `same`: the patch claims that losses and finite gradients are bit-identical. `kind` is that
    of the fix.
    """
    step = last_step(finding)
    failed = _failure(before.trace, after.trace, step)
    if failed is not None:
        return failed
    remaining = _same_cause(finding, before, after)
    if remaining is not None and kind == "clip-norm" and not _steps_at(after.trace, step):
        why = "no step of an optimizer follows, which is what clipping bounds"
        return Outcome(None, f"not tried: {why}")
    if remaining is not None:
        why = f"{_said(remaining)} is there all the same"
        elsewhere = remaining if _start(remaining) != _start(finding) else None
        return Outcome(False, why, doubtful=True, remains=elsewhere)
    fresh = _new_findings(before, after)
    if fresh:
        why = f"{_said(fresh[0])} breaks then"
        return Outcome(False, why, doubtful=True, remains=fresh[0])
    left = _left(finding, after.trace, step)
    if left is not None:
        others = [other for other in after.findings if left in other.symptoms]
        why = f"{left.kind} in `{left.tensor}` all the same"
        if others:
            why = f"{why}, from {_said(others[0])}"
        return Outcome(False, why, doubtful=True, remains=others[0] if others else None)
    unexplained = _unexplained(before, after, step)
    if unexplained is not None:
        what = f"{unexplained.kind} in `{unexplained.tensor}`"
        return Outcome(False, f"{what} is new", doubtful=True)
    worse = next((a.name for a, b in _pairs(before.trace, after.trace) if _breaks(a, b)), None)
    if worse is not None:
        why = f"the gradient of `{worse}` is no longer finite where it was"
        return Outcome(False, why, doubtful=True)
    moved = _moved(before.trace, after.trace, step)
    if same and moved and not _is_rounding(before.trace, after.trace, step):
        return Outcome(False, f"{moved[0]}, which this fix must not do", doubtful=True)
    others = [f for f in after.findings if f.severity is Severity.ERROR]
    parts = [
        *_gains(finding, before.trace, after.trace, kind),
        *_kept(before.trace, after.trace),
        *moved,
    ]
    if kind in HOLD_OFF and _learns(before.trace) and not _learns(after.trace):
        parts.append(IDLE)
    if kind in HOLD_OFF | {"dtype"} and _leaps(before.trace, after.trace, step):
        parts.insert(1, HUGE)
    if others:
        parts.append(f"what remains is {_said(others[0])}")
    # A finite loss that is bit-identical vouches for the second run having been the same run.
    vouched = not moved and _has_finite_loss(before.trace, step)
    return Outcome(True, ", ".join(parts), doubtful=not vouched)


def falls_short(verdict: str) -> bool:
    """Whether a verified fix leaves something to be desired."""
    return IDLE in verdict or HUGE in verdict


def _leaps(before: Trace, after: Trace, step: int) -> bool:
    """Whether a loss that was not finite comes back far beyond those of the steps before."""
    loss = _loss(after, step)
    if loss is None or _has_finite_loss(before, step):
        return False
    usual = [abs(one.loss) for one in before.steps if one.index < step and one.loss is not None]
    return abs(loss) > _LEAP * max(1.0, *usual, 0.0)


def _failure(before: Trace, after: Trace, step: int) -> Outcome | None:
    """The second run did not get as far as the first."""
    ending = after.ending
    if ending.kind == "interrupted":
        return Outcome(None, f"not tried: {ending.detail} ended the second run")
    if len(after.steps) > step:
        return None
    if ending.gave_up:
        if before.ending.kind == ending.kind and before.ending.detail == ending.detail:
            return None
        return Outcome(False, f"the program then ends with {ending.detail}", doubtful=True)
    if len(after.steps) >= len(before.steps):
        return None
    return Outcome(None, "not tried: the second run ended before the failing step")


def _same_cause(finding: Finding, before: Seen, after: Seen) -> Finding | None:
    """The finding, if it is still there: the same rule and op in the same function."""
    twins = [other for other in before.findings if _key(other) == _key(finding)]
    left = [
        other
        for other in after.findings
        # One that has become a warning is under control: a growth whose steps are clipped.
        if _key(other) == _key(finding) and other.severity is finding.severity
    ]
    return left[0] if len(left) >= len(twins) and left else None


def _steps_at(trace: Trace, step: int) -> bool:
    magnitudes = trace.magnitudes
    return magnitudes is None or any(update.step == step for update in magnitudes.updates)


def _new_findings(before: Seen, after: Seen) -> list[Finding]:
    known = {_key(finding) for finding in before.findings}
    places = {_place(finding) for finding in before.findings}
    return [
        finding
        for finding in after.findings
        if finding.severity is Severity.ERROR
        and _key(finding) not in known
        and not (_place(finding) in places and finding.step > max(f.step for f in before.findings))
        and not _was_dead(finding, before.trace)
    ]


def _was_dead(finding: Finding, before: Trace) -> bool:
    """Whether a finding is about gradients that never came in the first run either: it ended too
    early for that to be told."""
    alive = {gradient.name for gradient in before.gradients if gradient.norm or gradient.bad}
    lost = [one for one in finding.symptoms if one.kind in ("none-grad", "zero-grad")]
    return bool(alive and lost) and not any(symptom.tensor in alive for symptom in lost)


def _key(finding: Finding) -> tuple[object, ...]:
    """What names a finding in both runs; lines shift under a patch."""
    return finding.rule, finding.op, *_place(finding)


def _place(finding: Finding) -> tuple[object, ...]:
    location = finding.location
    return (location.file, location.function, location.module) if location else (None,)


def _said(finding: Finding) -> str:
    line = f" at line {finding.location.line}" if finding.location else ""
    return f"{finding.rule} {finding.name}{line}"


def _left(finding: Finding, after: Trace, step: int) -> Symptom | None:
    """A symptom of the finding that the second run shows as well."""
    had = {_hurt(symptom) for symptom in finding.symptoms}
    return next((s for s in after.symptoms if s.step <= step and _hurt(s) in had), None)


def _unexplained(before: Seen, after: Seen, step: int) -> Symptom | None:
    """A bad value of the second run that the first did not have."""
    had = {_hurt(symptom) for symptom in before.trace.symptoms}
    return next((s for s in after.trace.symptoms if s.step <= step and _hurt(s) not in had), None)


def _hurt(symptom: Symptom) -> tuple[str, str]:
    """What is bad, whether by NaN or by inf: ("grad", "x")."""
    return symptom.kind.partition("-")[2], symptom.tensor


def _start(finding: Finding) -> tuple[int, int] | None:
    """Where an expression begins: a repair inside it leaves that as it was."""
    return (finding.location.line, finding.location.col) if finding.location else None


def _gains(finding: Finding, before: Trace, after: Trace, kind: str) -> Iterator[str]:
    """What the finding's symptoms were, and are."""
    left = {(s.kind.partition("-")[2], s.tensor): s for s in after.symptoms}
    for symptom in finding.symptoms[:1]:
        what = symptom.kind.partition("-")[2]
        now = left.get((what, symptom.tensor))
        count = len(finding.symptoms)
        if what == "loss":
            continue
        others = plural(count - 1, "more tensor")
        more = f" (and {others})" if count > 1 else ""
        if what in ("grad", "param") and symptom.bad:
            left_bad = now.bad if now else 0
            yield f"bad elements of `{symptom.tensor}` {symptom.bad:,} -> {left_bad:,}{more}"
        else:
            became = "bounded" if kind == "clip-norm" else "gone"
            yield f"{symptom.kind} of `{symptom.tensor}` is {became}{more}"
    yield from _losses(before, after, last_step(finding))


def _losses(before: Trace, after: Trace, step: int) -> Iterator[str]:
    first, second = _loss(before, step), _loss(after, step)
    if first is not None and second is not None:
        yield f"loss {number(first, 6)} -> {number(second, 6)}"
    if after.gradients and all(not gradient.bad for gradient in after.gradients):
        yield f"gradient norm {text_of(_norm(after.gradients), 4)}"


def _learns(trace: Trace) -> bool:
    """Whether any gradient is not exactly 0; so also where none was looked at."""
    return not trace.gradients or any(one.norm or one.bad for one in trace.gradients)


def _norm(gradients: tuple[Gradient, ...]) -> float:
    return math.hypot(*(gradient.norm for gradient in gradients))


def _loss(trace: Trace, step: int) -> float | None:
    return next((one.loss for one in trace.steps if one.index == step), None)


def _has_finite_loss(trace: Trace, step: int) -> bool:
    loss = _loss(trace, step)
    return loss is not None and math.isfinite(loss)


def _kept(before: Trace, after: Trace) -> Iterator[str]:
    """How many elements of the gradients were finite before and are bit-identical now."""
    pairs = list(_pairs(before, after))
    finite = sum(first.numel - first.bad for first, _ in pairs)
    if pairs and finite and not any(_distance(first, second) for first, second in pairs):
        compared = "the other " if any(first.bad for first, _ in pairs) else "all "
        yield f"{compared}{plural(finite, 'gradient element')} unchanged"


def _pairs(before: Trace, after: Trace) -> Iterator[tuple[Gradient, Gradient]]:
    later = {gradient.name: gradient for gradient in after.gradients}
    for first in before.gradients:
        second = later.get(first.name)
        if second is not None and second.shape == first.shape:
            yield first, second


def _breaks(first: Gradient, second: Gradient) -> bool:
    """Whether elements that were finite are not any more."""
    samples = zip(first.sample, second.sample, strict=False)
    lost = any(math.isfinite(old) and not math.isfinite(new) for old, new in samples)
    return lost or second.bad > first.bad


def _distance(first: Gradient, second: Gradient) -> float:
    """The largest change of an element that was finite before, relative to the largest of them."""
    if first.digest == second.digest:
        return 0.0
    scale = max((abs(value) for value in first.sample if math.isfinite(value)), default=0.0)
    changes = (
        abs(new - old)
        for old, new in zip(first.sample, second.sample, strict=False)
        if math.isfinite(old) and old != new
    )
    worst = max(changes, default=0.0)
    if worst == 0.0 and not first.bad:
        return BETWEEN
    return worst / scale if scale else worst


def _moved_loss(before: Trace, after: Trace, step: int) -> tuple[int, float] | None:
    """The first step whose finite loss is not bit-identical, and by how much it differs."""
    for one in before.steps[: step + 1]:
        old, new = one.loss, _loss(after, one.index)
        if old is not None and new is not None and math.isfinite(old) and old != new:
            return one.index, abs(new - old)
    return None


def _is_rounding(before: Trace, after: Trace, step: int) -> bool:
    """Whether only gradients moved, and those no more than a sum does whose order has changed:
    where a gradient is differentiated again, a guard changes which terms are added first."""
    moves = [_distance(a, b) for a, b in _pairs(before, after)]
    known = BETWEEN not in moves
    return known and max(moves, default=0.0) <= ROUNDING and not _moved_loss(before, after, step)


def _moved(before: Trace, after: Trace, step: int) -> tuple[str, ...]:
    """The finite values that are not bit-identical, as phrases with by how much."""
    found = []
    loss = _moved_loss(before, after, step)
    if loss is not None:
        found.append(f"the loss of step {loss[0]} moves by {text_of(loss[1], 3)}")
    distances = [(_distance(a, b), a.name) for a, b in _pairs(before, after)]
    worst, name = max(distances, default=(0.0, ""))
    if worst:
        amount = "" if worst == BETWEEN else f" by {text_of(worst, 3)} of its largest"
        found.append(f"finite gradients move, `{name}` most{amount}")
    return tuple(found)


def repeats(first: Trace, second: Trace, step: int) -> bool:
    """Whether an unpatched second run was the same run: the same losses, bad ones included."""
    pairs = list(zip(first.steps[: step + 1], second.steps[: step + 1], strict=False))
    same = all(_identical(one.loss, other.loss) for one, other in pairs)
    return same and len(second.steps) >= min(len(first.steps), step + 1)


def _identical(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return first == second or (math.isnan(first) and math.isnan(second))
