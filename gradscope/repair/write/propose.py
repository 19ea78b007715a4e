"""Which candidates belong to which kind of fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import (
    AddToDiagonal,
    AllowEmpty,
    AverageLoss,
    BoundSchedule,
    ClearAfterStep,
    ClearGradients,
    ClipNorm,
    CopyBeforeWriting,
    Descend,
    DivideByOne,
    DivideLoss,
    Edit,
    Exchange,
    FillMemory,
    FitNumber,
    Fix,
    HarmlessOperand,
    HookBackward,
    IgnoreTarget,
    KeepNorm,
    KeepOff,
    KeepScaler,
    LearnPositive,
    LowerRate,
    MoveClipping,
    Phase,
    Reattach,
    Rewrite,
    ScaleLoss,
    SelectElements,
    SetOption,
    SlowSchedule,
    StableForm,
    StepAfterBackward,
    StepAtTheEnd,
    StepBeforeClearing,
    StepWhereCleared,
    TameSlope,
    Unsaturated,
    WiderDtype,
    WiderWeights,
)
from gradscope.facts.requests import OfRefusals
from gradscope.repair.write import (
    allocation,
    backward,
    clip_norm,
    cycles,
    detached,
    empty,
    guards,
    initial,
    masked,
    objected,
    positive,
    refused,
    selected,
    stable,
    stepping,
    tamed,
    training,
    unsaturated,
    wider,
)
from gradscope.repair.write.candidate import Candidate
from gradscope.repair.write.culprit import Culprit

GUARDS = ("epsilon", "clamp-domain")
MOST = 6  # candidates of one fix that are worth a run each


def _kept_off(culprit: Culprit) -> Iterator[Candidate]:
    if culprit.finding.phase is Phase.OPTIMIZER:
        yield from training.optimizer_eps(culprit)
    yield from guards.guarded(culprit)


def _masked(culprit: Culprit, *, hidden: bool = False) -> Iterator[Candidate]:
    yield from masked.masked(culprit, hidden=hidden)
    yield from guards.guarded(culprit)


def _scaled(culprit: Culprit) -> Iterator[Candidate]:
    yield from training.through_scaler(culprit)
    yield from training.scaled(culprit)


def fixes_of(culprit: Culprit) -> tuple[Fix, ...]:
    """The fixes that the rule proposes, after what the source shows to be the better one: the
    stable form, the scaler that was to take the step."""
    fixes = culprit.finding.fixes
    if any(isinstance(fix.request, Unsaturated) for fix in fixes):
        return fixes  # the stable form of what is flat is as flat
    if any(isinstance(fix.request, LowerRate) and fix.request.update for fix in fixes):
        scaler = next(training.through_scaler(culprit), None)
        return (
            fixes
            if scaler is None
            else (Fix(scaler.kind, scaler.title, "unsafe", request=ScaleLoss()), *fixes)
        )
    if any(isinstance(fix.request, OfRefusals) for fix in fixes):
        return fixes  # no value is at fault there
    stable_form = next(culprit.search.found(stable.rewritten(culprit)), None)
    if stable_form is None:
        return fixes
    proposed = [fix for fix in fixes if isinstance(fix.request, StableForm)]
    first = proposed or [Fix("stable-op", stable_form.title, "unsafe", request=StableForm())]
    return (*first, *(fix for fix in fixes if fix not in proposed))


def candidates(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """The ways to write a fix at the culprit, the one to prefer first, none twice."""
    seen: set[tuple[Edit, ...]] = set()
    for candidate in _made(culprit, fix):
        if candidate.edits not in seen and len(seen) < MOST:
            seen.add(candidate.edits)
            # A guard is an epsilon or a clamp by the rule's judgement of the values.
            is_guard = fix.kind in GUARDS and candidate.kind in GUARDS
            yield replace(candidate, kind=fix.kind) if is_guard else candidate


def _made(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """As the request tells. None for advice: what to change is not told by the source."""
    match fix.request:
        case LowerRate():
            return stepping.slower(culprit, fix, fix.request)
        case SetOption():
            return stepping.with_option(culprit, fix, fix.request)
        case BoundSchedule():
            return stepping.bounded(culprit, fix, fix.request)
        case ClearGradients():
            return stepping.cleared(culprit, fix, fix.request)
        case StepBeforeClearing():
            return stepping.step_first(culprit, fix, fix.request)
        case StepAfterBackward():
            return cycles.stepped(culprit, fix, fix.request)
        case ClearAfterStep():
            return cycles.cleared_late(culprit, fix, fix.request)
        case StepAtTheEnd():
            return cycles.ended(culprit, fix)
        case HookBackward():
            return backward.hooked(culprit, fix, fix.request)
        case Unsaturated():
            return unsaturated.opposite(culprit, fix, fix.request)
        case StepWhereCleared():
            return cycles.stepped_late(culprit, fix, fix.request)
        case SlowSchedule():
            return cycles.slowed(culprit, fix, fix.request)
        case KeepScaler():
            return cycles.kept_scaler(culprit, fix)
        case WiderWeights():
            return cycles.widened(culprit, fix)
        case AverageLoss():
            return stepping.averaged(culprit, fix, fix.request)
        case Descend():
            return stepping.descending(culprit, fix, fix.request)
        case DivideLoss():
            return stepping.divided(culprit, fix, fix.request)
        case ClipNorm():
            return clip_norm.clipped(culprit, fix, fix.request)
        case MoveClipping():
            return clip_norm.in_time(culprit, fix, fix.request)
        case KeepNorm():
            return initial.keeping(culprit, fix.request)
        case HarmlessOperand(hidden):
            return _masked(culprit, hidden=hidden)
        case KeepOff():
            return _kept_off(culprit)
        case DivideByOne():
            return guards.divided_by_one(culprit)
        case LearnPositive():
            return positive.learnt(culprit, fix, fix.request)
        case SelectElements():
            return selected.selected(culprit)
        case StableForm():
            return stable.rewritten(culprit)
        case WiderDtype():
            return wider.widened(culprit)
        case AllowEmpty():
            return empty.filled(culprit)
        case FillMemory():
            return allocation.filled(culprit)
        case ScaleLoss():
            return _scaled(culprit)
        case Reattach():
            return detached.reconnected(culprit, fix.request)
        case CopyBeforeWriting():
            return detached.copied(culprit)
        case AddToDiagonal(size):
            return objected.diagonal(culprit, size)
        case FitNumber(unfit):
            return objected.fitted(culprit, unfit)
        case IgnoreTarget(value):
            return objected.ignored(culprit, value)
        case TameSlope():
            return tamed.tamed(culprit, fix.request)
        case Rewrite():
            return backward.corrected(culprit, fix.request)
        case Exchange():
            return backward.exchanged(culprit, fix.request)
        case None:
            return iter(())
        case _:
            return refused.allowed(culprit, fix, fix.request)
