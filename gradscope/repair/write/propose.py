"""Which function writes which request, and the candidates of a fix."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gradscope.facts import Fix, Phase
from gradscope.facts import requests as ask
from gradscope.repair.write import (
    anew,
    arrays,
    backward,
    bounded,
    columns,
    cycles,
    detached,
    differentiable,
    distributions,
    drawn,
    dropped,
    empty,
    ends,
    eval_again,
    factors,
    followed,
    graphs,
    groups,
    guards,
    initial,
    instead,
    listed,
    masked,
    named,
    normed,
    once,
    parameters,
    positive,
    refused,
    remade,
    selected,
    stable,
    states,
    stepping,
    switched,
    taken,
    tamed,
    training,
    wider,
)
from gradscope.repair.write.culprit import Candidate, Culprit, NoTorch, Unpatchable, Ways, moved
from gradscope.repair.write.linked import linked

GUARDS = ("epsilon", "clamp-domain")
MOST = 6  # candidates of one fix that are worth a run each


def _kept_off(culprit: Culprit, request: ask.KeepOff) -> Ways:
    if (used := request.used) is not None:
        with suppress(Unpatchable):
            yield from guards.guarded(moved(culprit, used))
        return
    if culprit.finding.phase is Phase.OPTIMIZER:
        yield from training.optimizer_eps(culprit)
    yield from distributions.squashed(culprit)
    yield from guards.guarded(culprit)
    yield from masked.value_kept(culprit)


def _masked(culprit: Culprit, request: ask.HarmlessOperand) -> Ways:
    yield from masked.masked(culprit, hidden=request.hidden)
    yield from guards.guarded(culprit)


def _scaled(culprit: Culprit) -> Ways:
    yield from training.through_scaler(culprit)
    yield from training.scaled(culprit)


def _in_stable_form(culprit: Culprit, request: ask.StableForm) -> Ways:
    node = culprit.node if request.place is None else culprit.at(request.place)
    yield from stable.rewritten(replace(culprit, node=node))


# What these ask for is told by their class alone.
BY_CLASS: Mapping[type[ask.Request], Callable[[Culprit], Ways]] = {
    ask.KeepRandomState: drawn.kept,
    ask.SelectElements: selected.selected,
    ask.FillByMask: selected.with_inf,
    ask.CleanByMask: selected.cleaned,
    ask.DivideArrayByOne: arrays.divided_by_one,
    ask.WiderDtype: wider.widened,
    ask.WiderState: states.widened,
    ask.AllowEmpty: empty.filled,
    ask.TakeScores: ends.scores_taken,
    ask.NormaliseScores: ends.scores_normalised,
    ask.LearnPartInside: instead.learnt_in_part,
    ask.FillMemory: instead.allocated,
    ask.CopyBeforeWriting: detached.copied,
    ask.StepAtTheEnd: cycles.ended,
    ask.KeepScaler: cycles.kept_scaler,
    ask.StepThroughScaler: training.past_scaler,
    ask.ScaleThisLoss: training.scaled_too,
    ask.UnscaleBeforeStep: cycles.unscaled_late,
    ask.WiderWeights: cycles.widened,
    ask.BoundBase: stepping.kept_real,
    ask.ScaleLoss: _scaled,
    ask.WithoutGrad: refused.without_grad,
    ask.UpdateInPlace: refused.in_place,
    ask.LeafAtLast: refused.leaf_at_last,
    ask.WithFloats: taken.with_floats,
    ask.ByMagnitude: taken.by_magnitude,
    ask.DifferentiateForward: backward.by_autograd,
    ask.DropLastBatch: training.without_last,
    ask.KeepAsList: training.as_list,
    ask.MakeEach: listed.made_for_each,
    ask.FindUnused: graphs.finding_unused,
    ask.AllowUnused: graphs.allowing_unused,
    ask.JoinViews: columns.joined,
    ask.GiveLogits: distributions.by_logits,
}
BY_FIELDS: Mapping[type[ask.Request], Callable[[Culprit, Any], Ways]] = {
    ask.KeepOff: _kept_off,
    ask.HarmlessOperand: _masked,
    ask.DivideByOne: guards.divided_by_one,
    ask.FiniteStart: masked.started,
    ask.LearnLogarithm: positive.as_logarithm,
    ask.StartAtOne: positive.started_at_one,
    ask.WithoutNorm: normed.without,
    ask.ZeroGain: normed.of_gain,
    ask.WiderParameter: positive.in_float64,
    ask.StableForm: _in_stable_form,
    ask.LearnInside: instead.learnt,
    ask.LeaveOutRectifier: instead.left_out,
    ask.MatchShapes: instead.of_one_shape,
    ask.PrefixNames: named.prefixed,
    ask.SetFlag: parameters.flagged,
    ask.GiveScores: ends.given_scores,
    ask.LogTarget: ends.log_target,
    ask.ScaleTarget: instead.scaled_target,
    ask.AlongClasses: ends.along_classes,
    ask.TakeSigmoid: instead.by_sigmoid,
    ask.TakeLogits: instead.with_logits,
    ask.AddBehind: instead.behind,
    ask.RaiseAbove: instead.raised,
    ask.AddToDiagonal: instead.diagonal,
    ask.Symmetrize: instead.symmetric,
    ask.FitNumber: instead.fitted,
    ask.FitCast: instead.fitted_cast,
    ask.CastOperand: wider.converted,
    ask.WidenBound: bounded.widened,
    ask.IgnoreTarget: instead.ignored,
    ask.LeaveOutNothing: empty.left_out,
    ask.BoundIndex: instead.bounded_index,
    ask.TameSlope: tamed.tamed,
    ask.FillParameter: initial.filled_too,
    ask.LinearGrowth: instead.growing_linearly,
    ask.Unsaturated: stable.opposite,
    ask.Reattach: detached.reconnected,
    ask.HookBackward: backward.hooked,
    ask.Rewrite: backward.corrected,
    ask.Unmark: differentiable.unmarked,
    ask.DifferentiableForm: differentiable.differentiable,
    ask.Exchange: backward.exchanged,
    ask.OutOfPlace: refused.out_of_place,
    ask.RunOnce: refused.run_once,
    ask.CopyWhenSaved: refused.copied,
    ask.DetachCarried: graphs.let_go,
    ask.DetachUse: graphs.detached,
    ask.ProjectLeaf: refused.projected,
    ask.DetachRead: graphs.detached_where_read,
    ask.DetachMade: graphs.detached_at_once,
    ask.ComputeAnew: anew.each_turn,
    ask.KeepGraph: graphs.retained,
    ask.UpdateLater: graphs.later,
    ask.ComputeAfterUpdate: graphs.after_update,
    ask.CopyLeaf: refused.copied_leaf,
    ask.RetainGradient: refused.gradient_kept,
    ask.Thaw: graphs.thawed,
    ask.SwitchOffWithin: switched.switched_off_within,
    ask.KeepWithoutGraph: taken.without_graph,
    ask.DetachForArray: taken.for_array,
    ask.DetachInstead: taken.cut_off,
    ask.WriteIntoParameter: taken.written_into,
    ask.KeepOnContext: taken.on_context,
    ask.SetSparse: parameters.with_layout,
    ask.LeaveOutOfGroup: groups.left_out,
    ask.StartStateAnew: stepping.state_anew,
    ask.DifferentiateBy: graphs.asked_for,
    ask.HandOver: graphs.handed_over,
    ask.GiveInstead: columns.given_instead,
    ask.ReduceLoss: graphs.reduced,
    ask.LowerRate: stepping.slower,
    ask.ClearGradients: stepping.cleared,
    ask.StepBeforeClearing: stepping.step_first,
    ask.CopyWhenKept: taken.copied,
    ask.Descend: stepping.descending,
    ask.AverageLoss: stepping.averaged,
    ask.TurnSign: stepping.turned,
    ask.GiveParameters: parameters.given,
    ask.MakeOptimizerAnew: remade.remade,
    ask.AddParameters: parameters.with_collected,
    ask.CompleteGroups: groups.completed,
    ask.DivideLoss: stepping.divided,
    ask.AverageOnce: stepping.averaged_once,
    ask.SetMode: training.set_mode,
    ask.FollowStatistics: training.statistics_followed,
    ask.LowerMomentum: listed.slower,
    ask.DropInTraining: dropped.in_training,
    ask.SetEvalAgain: eval_again.after_train,
    ask.WriteAverage: followed.written_into,
    ask.CopyState: training.copied,
    ask.LoadOtherWay: training.swapped,
    ask.RestoreRandomState: drawn.restored,
    ask.LoadStateOf: training.taken_elsewhere,
    ask.StepAfterBackward: cycles.stepped,
    ask.ClearAfterStep: cycles.cleared_late,
    ask.DifferentiateAside: cycles.differentiated,
    ask.StepWhereCleared: cycles.stepped_late,
    ask.MoveOnWithSteps: cycles.moved_on,
    ask.SlowSchedule: cycles.slowed,
    ask.FactorAboveZero: cycles.awake,
    ask.DecayRate: stepping.decaying,
    ask.WaitForLess: cycles.turned,
    ask.WaitForMore: cycles.turned,
    ask.RateOfOne: cycles.rate_of_one,
    ask.ClipNorm: training.clipped,
    ask.MoveClipping: training.in_time,
    ask.KeepNorm: initial.keeping,
    ask.StartFactors: factors.first_alone,
    ask.DrawWeights: initial.at_random,
    ask.ShiftDiagonal: selected.diagonal_kept,
}


_EVERYWHERE = ask.RaiseAbove | ask.LearnInside | ask.LearnPartInside | ask.LinearGrowth
_NO_OTHER_FORM = ask.Allow | ask.AllowEmpty | ask.LeaveOutNothing | ask.AlongClasses
_ACROSS_FILES = (
    ask.StableForm
    | ask.LearnInside
    | ask.LearnLogarithm
    | ask.StartAtOne
    | ask.AddBehind
    | ask.DropLastBatch
)


def fixes_of(culprit: Culprit) -> tuple[Fix, ...]:
    """The fixes that the rule proposes, after what the source shows to be the better one: the
    stable form, the scaler that was to take the step."""
    fixes = culprit.finding.fixes
    requests = [fix.request for fix in fixes]
    if any(isinstance(one, ask.Unsaturated | ask.WidenBound) for one in requests):
        return fixes  # the stable form of what is flat is as flat, and a bound is no formula
    if any(isinstance(one, ask.LowerRate) and one.update for one in requests):
        scaler = next(iter(training.through_scaler(culprit)), None)
        if scaler is None:
            return fixes
        return (Fix("loss-scaling", scaler.title, "unsafe", request=ask.ScaleLoss()), *fixes)
    if any(isinstance(one, ask.KeepNorm) and one.fades for one in requests):
        return fixes  # as do its slopes in any form
    # What keeps a divisor off 0 leaves a state as it underflowed.
    if any(isinstance(one, ask.KeepOff | ask.WiderDtype) for one in requests):
        wide = Fix("dtype", "", "unsafe", request=ask.WiderState())
        state = next(culprit.search.found(_ways(culprit, wide)), None)
        if state is not None:
            return (replace(wide, title=state.title), *fixes)
    # No value is at fault there, or none that the program computes; of nothing at all, or along the
    # wrong dimension, no form of the expression is more stable.
    is_data = bool(fixes) and fixes[0].kind == "data"
    if is_data or any(isinstance(one, _NO_OTHER_FORM) for one in requests):
        return fixes
    wanted = Fix("stable-op", "", "unsafe", request=ask.StableForm())
    stable_form = next(culprit.search.found(_ways(culprit, wanted)), None)
    if stable_form is None:
        anew = Fix("backward-rewrite", "", "unsafe", request=ask.DifferentiateForward())
        # At a singular point what autograd makes of the same forward is as singular.
        is_too_large = culprit.finding.name == "overflow"
        own = next(culprit.search.found(_ways(culprit, anew)), None) if is_too_large else None
        return fixes if own is None else (replace(anew, title=own.title), *fixes)
    proposed = [fix for fix in fixes if isinstance(fix.request, ask.StableForm)]
    first = proposed or [replace(wanted, title=stable_form.title)]
    return (*first, *(fix for fix in fixes if fix not in proposed))


def candidates(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """The ways to write a fix at the culprit, the one to prefer first, none twice."""
    seen: set[tuple[object, ...]] = set()
    for one in _ways(culprit, fix):
        if all(edit.file == culprit.source.file for edit in one.edits):
            # What autograd is to allow may be that the program computes something a second time,
            # and `parameters()` is an iterator, which gives them once.
            is_anew = isinstance(fix.request, ask.Allow | ask.ToHold)
            one = one if is_anew else once.computed_once(culprit, one)
            one = replace(one, edits=culprit.with_import(one.edits))
        if one.edits and (one.edits, one.alone) not in seen and len(seen) < MOST:
            seen.add((one.edits, one.alone))
            # A guard is an epsilon or a clamp by the rule's judgement of the values.
            is_guard = fix.kind in GUARDS and one.kind in GUARDS
            yield replace(one, kind=fix.kind) if is_guard or not one.kind else one


def _ways(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """None for advice: what to change is not told by the source."""
    request = fix.request
    if request is None:
        return
    by_class = BY_CLASS.get(type(request))
    with suppress(NoTorch):
        for way in by_class(culprit) if by_class else BY_FIELDS[type(request)](culprit, request):
            if isinstance(way, Candidate):
                yield way
            else:
                yield Candidate(fix.title, tuple(way), everywhere=isinstance(request, _EVERYWHERE))
    if isinstance(request, _ACROSS_FILES):
        whole = linked(culprit)
        if whole is not None:
            yield from whole.apart(_ways(whole, fix))
