"""Which gradients an optimizer did not use, or used in vain, though they were made for it."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from gradscope.facts import Leaf, Location, Magnitudes, Movement, NoGradient, Step, Trace, Usage
from gradscope.ops.dtypes import FINFO, HALF
from gradscope.rules import cutoffs
from gradscope.rules.reading.fates import Loss, Lost
from gradscope.rules.reading.missing import NOT_HELD
from gradscope.rules.reading.splits import collected, is_split

_BY_CALL = (NoGradient.DETACH, NoGradient.NO_GRAD, NoGradient.INFERENCE)
_BY_THE_WAY = (NoGradient.SAMPLED, NoGradient.INTEGER, NoGradient.NUMBER, NoGradient.REWRAPPED)


def losses(trace: Trace) -> Iterator[Lost]:
    """One for each optimizer, the gravest."""
    magnitudes = trace.magnitudes
    for usage in magnitudes.usages:
        found = (
            _never_steps(usage, trace)
            or _elsewhere(usage, magnitudes)
            or _twice(usage, magnitudes)
            or _skipped(usage)
            or _idle(usage)
            or _upside_down(usage, trace.steps)
            or _squared(usage)
            or _overclipped(usage, magnitudes)
            or _rounded(usage)
            or _too_short(usage, magnitudes)
            or _overflown(usage, magnitudes)
            or _swept(usage, trace.steps)
            or _thrown_away(usage, trace.steps, magnitudes.usages)
            or _used_again(usage)
            or _left_over(usage, trace.steps)
            or _left_out(usage, magnitudes)
            or _unmoved(usage)
            or _at_zero(usage, magnitudes)
        )
        if found is not None:
            yield found


def _never_steps(usage: Usage, trace: Trace) -> Lost | None:
    magnitudes = trace.magnitudes
    is_trained = any(leaf.trained for leaf in magnitudes.leaves if leaf.name in usage.held)
    by_hand = any(not update.optimizer for update in magnitudes.updates)
    is_asked = usage.updates or usage.skipping is not None
    if is_asked or is_trained or by_hand or usage.handled or not usage.still:
        return None
    # Whoever adds up gradients and does not clear them may be about to step.
    if sum(usage.discards) < cutoffs.FEWEST or (magnitudes.updates and trace.ending.at_limit):
        return None
    place = next((one.backward_at for one in trace.steps if one.index == usage.last), None)
    return Lost(Loss.NEVER_STEPS, usage, usage.passes, usage.passes, place)


def _elsewhere(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    """It steps, and no pass that it uses was for what it holds: tensors that the model still has,
    and from which no op has cut the loss off that nobody calls for that."""
    if usage.updates < cutoffs.FEWEST or usage.used or usage.handled:
        return None
    others = tuple(leaf.name for leaf in _unheld(magnitudes)) or _of_another(usage, magnitudes)
    if not others or _is_cut_off(others, magnitudes):
        return None
    return Lost(Loss.ELSEWHERE, usage, usage.updates, usage.updates, others=others)


def _is_cut_off(others: Sequence[str], magnitudes: Magnitudes) -> bool:
    """Also where nobody is to train `others`: in eval mode, or of the same shapes one by one, as a
    copy of the model is that its results are compared with."""
    cut = [one for one in magnitudes.absences if one.trained and one.missing]
    shapes = Counter(one.shape for one in cut if one.reason in _BY_CALL)
    theirs = [leaf for leaf in magnitudes.leaves if leaf.name in others]
    is_copy = shapes == Counter(leaf.shape for leaf in theirs)
    is_fixed = is_copy or not any(leaf.training for leaf in theirs)
    return bool(shapes and is_fixed) or any(one.reason in _BY_THE_WAY for one in cut)


def _of_another(usage: Usage, magnitudes: Magnitudes) -> tuple[str, ...]:
    """What gets a gradient in each pass that it steps after, and is moved by others alone. What it
    holds gets one in other passes: nothing has cut it off."""
    beside = {
        name
        for one in magnitudes.usages
        if one is usage or not {*usage.after}.isdisjoint(one.used)
        for name in one.held
    }
    return tuple(
        leaf.name
        for leaf in magnitudes.leaves
        if usage.passes and leaf.trained and leaf.name not in beside and _is_for(usage, leaf)
    )


def _is_for(usage: Usage, leaf: Leaf) -> bool:
    """Whether each pass that it steps after gives the leaf a gradient, as far as was measured."""
    norms = [leaf.norms[step] for step in usage.after if step < len(leaf.norms)]
    return len(norms) >= cutoffs.FEWEST and all(norms[: cutoffs.FEWEST])


def _twice(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    """It steps, beside another one, what that one holds. Where the passes of both are for what
    nobody holds, the one that was made later has been given the wrong parameters."""
    alike = [one for one in magnitudes.usages if one.held and {*one.held} == {*usage.held}]
    intended = {
        id(one): tuple(
            leaf.name for leaf in _unheld(magnitudes) if leaf.training and _is_for(one, leaf)
        )
        for one in alike
        if one.updates >= cutoffs.FEWEST and not one.handled
    }
    wrong = [one for one in alike if intended.get(id(one))]
    are_used = len(intended) > 1 and all(one.used for one in alike)
    if not are_used or not wrong or wrong[-1] is not usage:
        return None
    of = usage.updates
    return Lost(Loss.TWICE, usage, of, of, others=intended[id(usage)])


def _left_out(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    """It steps, and each pass that it uses gave other parameters a gradient, which stay as they
    are, maybe from the pass on for which they were thawed: told once, of the optimizer that steps
    most. Modules in eval mode are there to be used and not to be trained."""
    most = max(magnitudes.usages, key=lambda one: one.updates)
    if usage is not most or usage.updates < cutoffs.FEWEST or usage.handled or not usage.used:
        return None
    own = [leaf.norms for leaf in magnitudes.leaves if leaf.name in usage.held]
    measured = [step for step, norms in enumerate(zip(*own, strict=True)) if any(norms)]
    others = tuple(
        leaf.name
        for leaf in _unheld(magnitudes)
        if leaf.training and _stays([bool(leaf.norms[step]) for step in measured])
    )
    if not others:
        return None
    how = Loss.NO_GROUP if is_split(usage, others, magnitudes) else Loss.LEFT_OUT
    of, known = usage.updates, collected(usage, others)
    return Lost(how, usage, of, of, others=others, collected=known)


def _stays(gets: Sequence[bool]) -> bool:
    """Whether what has come once is there in all later passes as well."""
    since = gets.index(True) if any(gets) else len(gets)
    return all(gets[since:]) and (not since or len(gets) - since >= cutoffs.FEWEST)


def _unheld(magnitudes: Magnitudes) -> list[Leaf]:
    """The parameters that get gradients and stay as they are, where nothing is known to be behind
    that; also leaves that could be ones."""
    if any(one.reason in (*NOT_HELD, NoGradient.STALE) for one in magnitudes.absences):
        return []
    held = {name for one in magnitudes.usages for name in one.held}
    return [
        leaf
        for leaf in magnitudes.leaves
        if leaf.held_as == "parameter" or (leaf.uniform and leaf.held)
        if not leaf.trained and leaf.name not in held
        if sum(map(bool, leaf.known)) >= cutoffs.FEWEST and leaf.weight == leaf.start
    ]


def _skipped(usage: Usage) -> Lost | None:
    skipping = usage.skipping
    if skipping is None or skipping.skipped < cutoffs.FEWEST:
        return None
    backs_off = skipping.skipped < cutoffs.BACKED_OFF or skipping.last > 1
    if skipping.last < skipping.first and backs_off:
        return None
    return Lost(Loss.SKIPPED, usage, skipping.skipped, skipping.calls)


def _idle(usage: Usage) -> Lost | None:
    idle, of = usage.rates.idle, usage.updates
    asleep = usage.rates.asleep if usage.rates.peak and usage.schedule is not None else 0
    if asleep >= max(cutoffs.FEWEST, cutoffs.IDLE * of):
        return Lost(Loss.ASLEEP, usage, asleep, of)
    if idle < cutoffs.FEWEST or idle < cutoffs.IDLE * of:
        return None
    if usage.rates.peak == 0 and usage.still:
        return Lost(Loss.NO_RATE, usage, idle, of)
    # The last value of a schedule is 0 by design; a mistake goes on beyond it.
    is_past = usage.schedule is not None and idle * usage.schedule.moves > of
    return Lost(Loss.IDLE, usage, idle, of) if is_past else None


def _upside_down(usage: Usage, steps: Sequence[Step]) -> Lost | None:
    """A schedule that waits for the least is told ever larger values while the loss falls, or the
    other way round, and lowers the rate."""
    schedule = usage.schedule
    if schedule is None or schedule.lowered_at is None or not schedule.is_upside_down:
        return None
    known = [one.loss for one in steps[: schedule.lowered_at] if one.loss is not None]
    quarter = len(known) // 4
    if not quarter or sum(known[-quarter:]) >= cutoffs.FALLEN * sum(known[:quarter]):
        return None
    return Lost(Loss.UPSIDE_DOWN, usage, len(schedule.values), usage.updates)


def _unmoved(usage: Usage) -> Lost | None:
    """Torch's own optimizers do what they are asked to."""
    is_told = usage.lost_at is not None or not (usage.rates.last and usage.used)
    if is_told or not (usage.own and usage.still) or usage.updates < cutoffs.FEWEST:
        return None
    return Lost(Loss.UNMOVED, usage, usage.updates, usage.updates)


def _at_zero(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    """Torch's own optimizers move a parameter that is 0 as any other."""
    if not (usage.own and usage.rates.last) or usage.updates < cutoffs.FEWEST:
        return None
    held = [leaf for leaf in magnitudes.leaves if leaf.name in usage.held and any(leaf.known)]
    stuck = tuple(leaf.name for leaf in held if leaf.start == leaf.weight == 0)
    if not stuck or len(stuck) == len(held):
        return None
    return Lost(Loss.AT_ZERO, usage, usage.updates, usage.updates, others=stuck)


def _squared(usage: Usage) -> Lost | None:
    """A function that is to give a factor gives the rate itself: at most exactly the one that it is
    multiplied by, which no warm-up still on its way has come to."""
    schedule, rates = usage.schedule, usage.rates
    base = schedule.base if schedule is not None else None
    is_past = 0 < rates.last < rates.peak
    if not base or not is_past or usage.updates < cutoffs.FEWEST or base >= cutoffs.WHOLE_RATE:
        return None
    is_itself = math.isclose(rates.peak, base * base, rel_tol=1e-6)
    return Lost(Loss.SQUARED, usage, usage.updates, usage.updates) if is_itself else None


def _overclipped(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    """Whatever a bound is meant for, it does harm where the weights stay. What is clipped at the
    wrong time is told by GS405."""
    moved = [one for one in usage.movements if one.lr]
    is_cut = any(
        all(one.kept <= kept and one.moved * usage.rates.peak <= far * abs(one.lr) for one in moved)
        for kept, far in cutoffs.OVERCLIPPED
    )
    late = {one.location for one in magnitudes.clips}
    if len(moved) + 1 < cutoffs.FEWEST or not is_cut or moved[-1].clipped_at in late:
        return None
    return Lost(Loss.OVERCLIPPED, usage, usage.updates, usage.updates)


def _rounded(usage: Usage) -> Lost | None:
    moved = [one for one in usage.movements if one.lr and one.pulled]
    has_moved = any(one.still < cutoffs.MOSTLY * one.pulled for one in moved)
    if has_moved or len(moved) + 1 < cutoffs.FEWEST:
        return None
    # At updates ever farther apart, so that a warm-up shows between the last two.
    is_rising = len(moved) > 1 and moved[-1].lr > cutoffs.STILL_RISING * moved[-2].lr
    if is_rising and usage.rates.last >= usage.rates.peak:
        return None
    return Lost(Loss.ROUNDED, usage, moved[-1].still, moved[-1].pulled)


def _too_short(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    """A parameter in full precision that stays as it was, since its numbers lie farther apart than
    the steps are long: with an optimizer that divides by the size of the gradient they are about as
    long as the learning rate."""
    rate = usage.rates.peak
    if not (usage.blind_to_scale and rate) or usage.updates < cutoffs.FEWEST:
        return None
    for leaf in magnitudes.leaves:
        has_stayed = leaf.weight == leaf.start and any(leaf.known)
        is_full = leaf.dtype in FINFO and leaf.dtype not in HALF  # half precision was measured
        if leaf.name not in usage.held or not has_stayed or not is_full:
            continue
        scale = leaf.weight / math.sqrt(leaf.numel)
        # The numbers next to it are eps / 2 to eps times its size apart.
        if rate < FINFO[leaf.dtype].eps / 4 * scale:
            sizes = leaf.numel, leaf.numel, leaf.name, leaf.dtype, scale
            moves = (Movement(usage.last, rate, *sizes),)
            return Lost(Loss.ROUNDED, replace(usage, movements=moves), leaf.numel, leaf.numel)
    return None


def _overflown(usage: Usage, magnitudes: Magnitudes) -> Lost | None:
    overflow = usage.overflow
    if overflow is None:
        return None
    leaps = [
        one
        for one in magnitudes.leaps
        if one.step <= overflow.step and one.stretch and one.steep.slope >= cutoffs.HUGE
    ]
    # A product is as large as its factors; what grows faster than its operand made them.
    leap = max(leaps, key=lambda one: one.stretch or 0.0, default=None)
    how = Loss.NORM_OVERFLOWN if overflow.clipped_at is not None else Loss.OVERFLOWN
    return Lost(how, usage, overflow.parameters, len(usage.held), leap=leap)


def _thrown_away(usage: Usage, steps: Sequence[Step], usages: Sequence[Usage]) -> Lost | None:
    """Cleared between the passes of one step: before each of them, or in their midst. Passes that
    another optimizer has used were for that one: they take turns."""
    if any(not {*usage.discarded}.isdisjoint(one.used) for one in usages):
        return None
    count, times = _commonest(usage.between)
    used, alike = _commonest(usage.cycles)
    if count < 1 or usage.handled or not _are_most(times, usage.between):
        return None
    if not (used and _are_most(alike, usage.cycles) and len(set(usage.discards)) == 1):
        return None
    if usage.updates < cutoffs.ACCUMULATES or backward_of(usage, steps) is None:
        return None
    return Lost(Loss.THROWN_AWAY, usage, count, count + used, backward_of(usage, steps))


def _swept(usage: Usage, steps: Sequence[Step]) -> Lost | None:
    """Cleared together with those of a later pass, of one place, whose gradient by something else
    was wanted: what no step ever uses of an earlier place was to be trained with."""
    at = {step.index: step.backward_at for step in steps}
    places = {at.get(step) for step, _ in usage.swept}
    aside = {at.get(step) for _, step in usage.swept}
    if len(usage.swept) < cutoffs.ACCUMULATES or usage.handled or len(places) != 1 != len(aside):
        return None
    (place,), (other,) = places, aside
    if place is None or other is None or place == other or place in map(at.get, usage.used):
        return None
    count = len(usage.swept)
    return Lost(Loss.SWEPT, usage, count, count, place, aside=other)


def _used_again(usage: Usage) -> Lost | None:
    """Stepped again and again with what earlier steps have used, and cleared after every few."""
    both = [*zip(usage.piles, usage.cycles, strict=True)]
    cleared = [at for at, (pile, own) in enumerate(both) if pile == own]
    periods = {after - before for before, after in pairwise(cleared)}
    own = {cycle for pile, cycle in both if pile > cycle}
    if usage.handled or len(periods) != 1 or len(own) != 1 or len(cleared) <= cutoffs.ACCUMULATES:
        return None
    (period,) = periods
    if period < cutoffs.ACCUMULATES:
        return None
    return Lost(Loss.USED_AGAIN, usage, period, period)


def _left_over(usage: Usage, steps: Sequence[Step]) -> Lost | None:
    """Stepped after every few passes, of which the last ones of an epoch are too few."""
    passes, times = _commonest(usage.cycles)
    if passes < cutoffs.ACCUMULATES or times < cutoffs.ACCUMULATES or usage.handled:
        return None
    place = backward_of(usage, steps)
    left = _carried(usage, passes) or _dropped(usage, passes)
    return Lost(Loss.LEFT_OVER, usage, left, passes, place) if left and place else None


def _dropped(usage: Usage, passes: int) -> int:
    """Cleared with the next epoch."""
    left, times = _commonest((*usage.discards, *([usage.left] if usage.left else [])))
    is_whole = set(usage.cycles) == {passes}
    is_regular = times >= 2 and len(usage.discards) < times + 2
    return left if is_whole and is_regular and left < passes else 0


def _carried(usage: Usage, passes: int) -> int:
    """Added to the first update of the next epoch."""
    long = [at for at, one in enumerate(usage.cycles) if one != passes]
    left = {usage.cycles[at] - passes for at in long}
    periods = {after - before for before, after in pairwise(long)}
    is_regular = len(left) == 1 and len(periods) == 1 and not usage.discards
    return min(left) if is_regular and 0 < min(left) < passes else 0


def backward_of(usage: Usage, steps: Sequence[Step]) -> Location | None:
    """Where all these passes were asked for, if in one place: passes of other places are for other
    purposes, and so are their gradients."""
    wanted = {*usage.discarded, *usage.used}
    places = {step.backward_at for step in steps if step.index in wanted}
    return places.pop() if len(places) == 1 else None


def _commonest(counts: Iterable[int]) -> tuple[int, int]:
    """The number that was seen most often, and how often; 0 where there is none."""
    return next(iter(Counter(counts).most_common(1)), (0, 0))


def _are_most(times: int, counts: Sequence[int]) -> bool:
    return times >= cutoffs.REGULAR * len(counts)
