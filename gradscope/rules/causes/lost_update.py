"""Gradients that no step uses, and steps that change nothing."""

import math
from collections.abc import Iterator

from gradscope.facts import (
    Finding,
    Fix,
    Location,
    LostAverage,
    Phase,
    Root,
    Severity,
    Subject,
    Symptom,
    Trace,
    Trouble,
    Undoing,
    plural,
    text_of,
)
from gradscope.facts import requests as ask
from gradscope.ops.dtypes import FINFO, HALF
from gradscope.rules.cutoffs import FEWEST
from gradscope.rules.reading import measurements
from gradscope.rules.reading.fates import Loss, Lost, moves_each
from gradscope.rules.reading.growths import clip_bound
from gradscope.rules.reading.lost import losses
from gradscope.rules.rule import Asked, Rule, places, symptoms
from gradscope.rules.wording import phrases
from gradscope.rules.wording.lost_words import numbers, words


class LostUpdate(Rule):
    """
    ## What it does
    Finds gradients that never move a parameter: no step uses them, the optimizer holds other
    parameters, gradients are cleared before a step, the learning rate is 0 or a schedule has
    brought it there, also since it is moved on at each pass, or multiplies it by itself, a clipping
    bound cuts the gradients down to almost nothing, half precision rounds the step away, gradients
    are so large that what a step is divided by becomes inf, an update by hand goes to a name and to
    no parameter, the average of two models that one of them was to follow by is lost, the weights
    of a module that nobody trains are loaded over those that are. Also gradients that several steps
    use, since they are cleared too seldom. Parameters that get a gradient beside those that an
    optimizer holds, and that none holds, are noted, and told where its groups are a split of all
    parameters, which fits none of them, or where it was given those of another module twice.

    ## Why is this bad?
    Nothing raises and nothing is NaN. The loss is computed, backward runs, and training does not do
    what was written: the parameters stay as they are, or learn from a part of the batches alone.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
    -     optimizer.zero_grad()
        (model(torch.randn(8, 4)).square().mean() / 4).backward()
        if step % 4 == 3:
            optimizer.step()
    +         optimizer.zero_grad()
    ```

    ## Fix safety
    Unsafe: parameters that stood still will move.
    """

    code = "GS407"
    name = "lost-update"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        if not roots:
            yield from map(self._about, losses(trace))
            yield from self._unwritten(trace)
            yield from map(self._undone, trace.magnitudes.undoings)
            yield from map(self._averaged, trace.lost_averages)

    def _unwritten(self, trace: Trace) -> Iterator[Finding]:
        """An update, by hand or of an optimizer that the program defines, that no parameter gets to
        know of."""
        leaves = trace.magnitudes.leaves
        lost = [
            (leaf.lost_at, leaf.name)
            for leaf in leaves
            if leaf.lost_at and leaf.weight == leaf.start and any(leaf.known)
        ]
        lost += [
            (one.lost_at, name)
            for one in trace.magnitudes.usages
            if one.lost_at
            for name in one.held
        ]
        if not lost:
            return
        step, place = trace.steps[-1].index, lost[0][0]
        named = [name for _, name in lost]
        yield self.found(
            f"the update of {plural(len(named), 'parameter')} goes to no parameter:"
            f" {phrases.listed(named)}",
            "The line makes a new tensor, and does not write into the parameter that the loop's"
            " variable stands for. Nothing reads the new one: what is to be learnt never gets into"
            " the parameters.",
            step=step,
            op="step",
            location=place,
            label="no parameter is written",
            symptoms=symptoms(Trouble.UNCHANGED, Subject.PARAMETER, step, named),
            fixes=(ask.UpdateInPlace(),),
        )

    def _averaged(self, lost: LostAverage) -> Finding:
        return self.found(
            f"averages of weights are computed and lost: {phrases.listed(lost.targets)} stay as"
            " they were",
            f"They are to follow {phrases.listed(lost.sources)}, which are trained. The line makes"
            " new tensors, and gives them to a name or to an entry of a dictionary; nothing reads"
            " them there. Only a write in place changes the parameters of a module.",
            step=lost.step,
            op="average",
            location=lost.location,
            label="no parameter is written",
            evidence={"parameters": len(lost.targets)},
            fixes=(ask.WriteAverage(lost.may_write),),
        )

    def _undone(self, one: Undoing) -> Finding:
        return self.found(
            f"the updates of `{one.model}` are thrown away: it is given the weights of"
            f" `{one.source}` again and again",
            f"Loading them has undone {plural(one.times, 'time')} what `{one.optimizer}` had done"
            f" since the time before, and nobody has changed `{one.source}` meanwhile. A target"
            " network is to follow the one that is trained, and not the other way round.",
            severity=Severity.WARNING,
            step=one.step,
            op="load_state_dict",
            location=one.loaded_at,
            label="overwrites what was learnt",
            evidence=measurements.fields_of(one, "times", "optimizer"),
            fixes=(ask.LoadOtherWay(),),
        )

    def _about(self, lost: Lost) -> Finding:
        usage, text = lost.usage, words(lost)
        place, others = _places(lost)
        return self.found(
            text.headline,
            text.why,
            severity=_severity(lost),
            step=_step(lost),
            op="step",
            location=place,
            label=_label(lost) or text.label,
            related=places(*(("use", at, what) for at, what in others if at != place)),
            evidence={
                "reason": lost.how.name.lower().replace("_", "-"),
                **measurements.fields_of(usage, "optimizer", "updates", "passes"),
                "lost": lost.passes,
                "of": lost.of,
            },
            numbers=tuple(numbers(lost)),
            symptoms=_symptoms(lost),
            fixes=_fixes(lost),
        )


def _label(lost: Lost) -> str:
    if lost.how is Loss.LEFT_OUT and lost.usage.twice_at is not None:
        return "is listed a second time"
    if lost.leap is None:
        return ""
    times = text_of(lost.leap.steep.slope, 3)
    return f"`{phrases.spelled(lost.leap.call.op)}` multiplies the gradient by {times}"


def _step(lost: Lost) -> int:
    """By which it shows."""
    usage = lost.usage
    if lost.how in (Loss.ELSEWHERE, Loss.TWICE):
        return usage.after[: FEWEST + 1][-1]
    return usage.rates.since if lost.how is Loss.IDLE else usage.last


def _severity(lost: Lost) -> Severity:
    if lost.how is Loss.LEFT_OUT:  # a head that is trained alone, or another network's loss
        is_slip = lost.collected or lost.usage.twice_at is not None
        return Severity.WARNING if is_slip else Severity.NOTE
    is_mild = lost.how in _MILD or (lost.how is Loss.IDLE and 2 * lost.passes < lost.of)
    return Severity.WARNING if is_mild else Severity.ERROR


def _places(lost: Lost) -> tuple[Location | None, tuple[tuple[Location | None, str], ...]]:
    """Where to point, and other places with what happens there."""
    usage = lost.usage
    made = (usage.made, f"`{usage.optimizer}` is made here")
    steps, backward = (usage.steps_at, "steps here"), (lost.backward, "the gradients are made here")
    cleared, schedule = (usage.clears_at, "cleared here"), usage.schedule
    place = usage.made or usage.steps_at
    others: tuple[tuple[Location | None, str], ...] = (made, steps)
    match lost.how:
        case Loss.NEVER_STEPS:
            place, others = lost.backward, (made, cleared)
        case Loss.LEFT_OUT:
            place = usage.twice_at or place
        case Loss.SKIPPED:
            place, others = usage.skipping.location if usage.skipping else None, (made,)
        case Loss.NO_RATE | Loss.SQUARED | Loss.ASLEEP | Loss.UPSIDE_DOWN:
            place = (schedule.made if schedule else None) or place
        case Loss.IDLE:
            place = (schedule.moved_at if schedule else None) or usage.steps_at
            others = ((schedule.made if schedule else None, "sets the learning rate"), steps)
        case Loss.OVERCLIPPED:
            place = usage.movements[-1].clipped_at
        case Loss.ROUNDED | Loss.UNMOVED | Loss.AT_ZERO:
            place = usage.steps_at
        case Loss.OVERFLOWN | Loss.NORM_OVERFLOWN:
            assert usage.overflow is not None
            clipped_at = usage.overflow.clipped_at
            place, others = clipped_at or usage.steps_at, (made,)
            if lost.leap is not None:
                place = lost.leap.call.location
                others = (made, steps, (clipped_at, "clipped here to nothing"))
        case Loss.THROWN_AWAY:
            place, others = usage.clears_at or usage.steps_at, (steps, backward)
        case Loss.SWEPT:
            place = usage.clears_at or usage.steps_at
            others = (backward, (lost.aside, "for the gradient of something else"), steps)
        case Loss.USED_AGAIN:
            place, others = usage.steps_at, (cleared,)
        case Loss.LEFT_OVER:
            place, others = usage.steps_at, (backward, cleared)
    return place, others


def _symptoms(lost: Lost) -> tuple[Symptom, ...]:
    usage = lost.usage
    if lost.how is Loss.ROUNDED:
        last = usage.movements[-1]
        still = last.still, last.pulled
        return (Symptom(Trouble.UNCHANGED, Subject.PARAMETER, last.step, last.leaf, *still),)
    if usage.overflow is not None and lost.how in _DIVIDED_BY_INF:
        worst = usage.overflow.step, usage.overflow.leaf or usage.held[0]
        return (Symptom(Trouble.UNCHANGED, Subject.PARAMETER, *worst, lost.passes, lost.of),)
    if lost.how in _MOVING:
        return ()
    unmoved = lost.others or usage.held
    return symptoms(Trouble.UNCHANGED, Subject.PARAMETER, _step(lost), unmoved)


_MILD = (
    Loss.AT_ZERO,
    Loss.NO_GROUP,
    Loss.ASLEEP,
    Loss.SQUARED,
    Loss.LEFT_OVER,
    Loss.OVERCLIPPED,
    Loss.UPSIDE_DOWN,
)
_DIVIDED_BY_INF = (Loss.OVERFLOWN, Loss.NORM_OVERFLOWN)
_MOVING = (
    Loss.ASLEEP,
    Loss.SQUARED,
    Loss.OVERCLIPPED,
    Loss.SWEPT,
    Loss.THROWN_AWAY,
    Loss.USED_AGAIN,
    Loss.LEFT_OVER,
    Loss.UPSIDE_DOWN,
)
_ASKED = {
    Loss.NEVER_STEPS: ask.StepAfterBackward,
    Loss.SQUARED: ask.RateOfOne,
    Loss.THROWN_AWAY: ask.ClearAfterStep,
    Loss.USED_AGAIN: ask.StepWhereCleared,
    Loss.LEFT_OVER: ask.StepAtTheEnd,
}


def _fixes(lost: Lost) -> Iterator[Asked]:
    usage, schedule = lost.usage, lost.usage.schedule
    overflow, skipping = usage.overflow, usage.skipping
    if lost.how in _ASKED:
        yield _ASKED[lost.how](usage)
    match lost.how:
        case Loss.THROWN_AWAY if usage.cycles[0] > 1:
            yield ask.StepAtTheEnd(usage)  # the passes that begin a cycle may be meant to end one
        case Loss.IDLE:
            if moves_each(usage) > 1:
                yield ask.MoveOnWithSteps(usage)
            if schedule is not None and schedule.gamma == 0:
                yield ask.DecayRate(schedule)
            else:
                is_vain = schedule is not None and schedule.waits_in_vain
                yield ask.WaitForLess(usage) if is_vain else ask.SlowSchedule(usage)
        case Loss.NO_RATE | Loss.ASLEEP if schedule is not None and schedule.given_by is not None:
            yield ask.FactorAboveZero(schedule.given_by)
        case Loss.NO_RATE | Loss.ASLEEP:
            yield Fix("graph", "give it a learning rate above 0", "unsafe", "lr=1e-3")
        case Loss.UPSIDE_DOWN:
            rises = schedule is not None and schedule.rises
            yield ask.WaitForLess(usage) if rises else ask.WaitForMore(usage)
        case Loss.SWEPT if lost.aside is not None:
            yield ask.DifferentiateAside(lost.aside)
        case Loss.ELSEWHERE | Loss.TWICE:
            yield ask.GiveParameters(usage, lost.others)
        case Loss.NO_GROUP:
            yield ask.CompleteGroups(usage, lost.others)
        case Loss.LEFT_OUT:
            yield ask.AddParameters(usage, lost.others, lost.collected)
        case Loss.UNMOVED:
            title = "write the step into the parameters themselves, or take a longer one"
            yield Fix("graph", title, "unsafe", "p.add_(step, alpha=-lr)")
        case Loss.AT_ZERO:
            title = "take the plain step where the size of a parameter is 0"
            yield Fix("graph", title, "unsafe", "torch.where(norm > 0, ratio, 1.0)")
        case Loss.OVERCLIPPED:
            yield ask.ClipNorm(clip_bound(tuple(one.total for one in usage.movements)))
        case Loss.ROUNDED:
            last = usage.movements[-1]
            is_half = last.dtype in HALF
            yield ask.WiderWeights(last.dtype) if is_half else ask.WiderParameter(last.leaf)
        case Loss.OVERFLOWN | Loss.NORM_OVERFLOWN if overflow is not None:
            if overflow.dtype == "float16":
                yield ask.WiderWeights(overflow.dtype)
                yield ask.ClipNorm()
            # In float32 the norm that clipping divides by overflows as well.
            most = text_of(math.sqrt(FINFO[overflow.dtype].max), 2)
            title = f"scale what the loss is computed from until no gradient is beyond {most}"
            yield Fix("data", title, "unsafe")
        case Loss.SKIPPED if skipping is not None and skipping.last < skipping.first:
            title = "find the op that makes inf or NaN: run without the scaler"
            yield Fix("loss-scaling", title, code="GradScaler(device, enabled=False)")
        case Loss.SKIPPED:
            yield ask.KeepScaler()
