"""Which of the gradients that are missing, or exactly 0, are a fault of the program."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.facts import (
    Absence,
    Call,
    Event,
    Kind,
    Leaf,
    Limits,
    Location,
    Magnitudes,
    NoGradient,
    Phase,
    Trace,
    Zeroed,
)
from gradscope.facts import requests as ask
from gradscope.ops.dtypes import finfo
from gradscope.ops.traits import Trait, has
from gradscope.rules.cutoffs import LASTING
from gradscope.rules.reading import evidence
from gradscope.rules.reading.growths import fades

# They get a gradient, and no optimizer has them.
NOT_HELD = (
    NoGradient.UNREGISTERED,
    NoGradient.REPLACED,
    NoGradient.SWAPPED,
    NoGradient.ADDED,
    NoGradient.REMADE,
    NoGradient.PASSING,
)
NOT_CHOSEN = (NoGradient.MASKED, NoGradient.UNKNOWN)
_SCALED_AWAY = (NoGradient.ZERO_WEIGHT, NoGradient.BY_INF)
_AT_ZERO = (NoGradient.ZERO_WEIGHT, NoGradient.ZERO_VALUE)
_HARDLY = 0.5  # of the first loss
_ROUNDED = 1e-12  # of the largest: what is left where terms cancel
CUT_OFF = (NoGradient.DETACH, NoGradient.INTEGER, NoGradient.NUMBER, NoGradient.REWRAPPED)


def is_dead(absence: Absence, magnitudes: Magnitudes, limits: Limits) -> bool:
    """Whether the absence is a fault: of what should train, for good, and of more than a bias."""
    if absence.reason in NOT_HELD:
        return bool(magnitudes.updates)
    if magnitudes.updates and not absence.trained:
        return False
    if absence.missing:
        return absence.trained or absence.reason in CUT_OFF
    return _is_zero_for_good(absence, magnitudes, limits)


def is_mild(absence: Absence) -> bool:
    """Whether there are good reasons for a parameter to have no gradient."""
    if absence.reason is NoGradient.REMADE:
        return not absence.trained  # what the batch is disturbed by, that no optimizer waits for
    if absence.reason is NoGradient.DIFFERENTIATED:
        return True  # a last bias, of which no derivative is left
    if absence.packaged:  # the package offers it, and the user has another use for the rest
        return absence.reason in (NoGradient.UNUSED, NoGradient.UNREACHED)
    return absence.siblings and absence.reason in (NoGradient.UNUSED, NoGradient.UNREACHED)


def _is_zero_for_good(absence: Absence, magnitudes: Magnitudes, limits: Limits) -> bool:
    reason = absence.reason
    if reason is NoGradient.CANCELLED:
        return False  # as the offset of a score that is only compared
    leaf = next((one for one in magnitudes.leaves if one.name == absence.leaf), None)
    if leaf is None or any(fades(one, limits) for one in magnitudes.growths):
        return False  # the far end of a gradient that fades is the business of GS402
    if absence.siblings and reason in (*NOT_CHOSEN, NoGradient.OVERWRITTEN):
        return False  # an expert, or a branch, that the data has not chosen yet
    may_move = reason in (*NOT_CHOSEN, *_AT_ZERO, NoGradient.LEFT_OUT)
    if may_move and len(leaf.known) < limits.zero_passes:
        return False
    beside = any(_learns_beside(one, leaf) for one in magnitudes.leaves)
    if leaf.owner and beside and not _is_sure(absence, magnitudes):
        return False  # a bias before a normalisation, a scale that another one absorbs
    return absence.trained or leaf.held_as == "leaf" or reason not in NOT_CHOSEN


def _learns_beside(other: Leaf, leaf: Leaf) -> bool:
    """Whether another leaf of the module gets a gradient in a pass that gives this one zeros. What
    was in its place before, as a layer that was replaced, says nothing."""
    both = zip(other.norms, leaf.norms, strict=False)
    return other.owner == leaf.owner and any(one and own is not None for one, own in both)


def _is_sure(absence: Absence, magnitudes: Magnitudes) -> bool:
    """Whether no other parameter can do what this one was to learn."""
    if absence.reason is not NoGradient.ZERO_WEIGHT:
        return absence.reason in (NoGradient.ZERO_OP, NoGradient.ZERO_VALUE)
    there = [one for one in magnitudes.absences if one.location == absence.location]
    return bool(factors_at_zero(there, magnitudes))


def factors_at_zero(group: Sequence[Absence], magnitudes: Magnitudes) -> tuple[ask.ZeroFactor, ...]:
    """Of products that are 0 since both sides are: the factors nearer to the input, each place
    once. None where it is not known what has made both sides 0."""
    known = {one.name: one for one in magnitudes.leaves}
    zeros = (one for one in group if one.reason is NoGradient.ZERO_WEIGHT)
    found = [(one, known[one.leaf]) for one in zeros if one.leaf in known]
    behind = [leaf.zeroed for one, leaf in found if leaf.zeroed and not one.nearer]
    nearer = [leaf for one, leaf in found if leaf.zeroed and one.nearer]
    most = max((len(leaf.shape) for leaf in nearer), default=0)  # and no bias
    before = [leaf.zeroed for leaf in nearer if leaf.zeroed and len(leaf.shape) == most]
    factors = (_factor(one, before, behind, most) for one in before) if behind else ()
    return tuple({one.place: one for one in factors}.values())


def _factor(
    one: Zeroed, before: Sequence[Zeroed], behind: Sequence[Zeroed], dims: int
) -> ask.ZeroFactor:
    """Its place is the innermost frame that has made it 0, and none of those behind it."""
    others = [other for other in behind if other.frames[0] == one.frames[0]]
    alone = (
        place
        for at, place in enumerate(one.frames)
        if all(other.frames[at : at + 1] != (place,) for other in others)
    )
    place = next(alone, None)
    own = min(other.number for other in before if other.frames[0] == one.frames[0])
    is_first = all(own < other.number for other in others)
    found = ask.ZeroFactor(
        place or one.frames[0], place is None, is_first, one.drawn, one.later, dims
    )
    if place is not None:
        return found
    first = min(others, key=lambda other: other.number)
    call, depth, last = next(_calls_for_all(one, others), (len(one.given), 0, first))
    return replace(
        found,
        place=one.frames[call],
        last="".join(last.path[depth:]),
        inside="".join(last.path[last.own :]) if last.own and not call else "",
        all=depth > 0,
        helper=one.frames[0] if call else None,
    )


def _calls_for_all(one: Zeroed, behind: Sequence[Zeroed]) -> Iterator[tuple[int, int, Zeroed]]:
    """The calls that were given a module with a layer and with one behind it, the innermost first,
    with how far down the path of both that is, and the one behind it."""
    for call, depth in enumerate(one.given, 1):
        for other in behind:
            is_given = other.given[call - 1 : call] == (depth,)
            if is_given and other.path[:depth] == one.path[:depth]:
                yield call, depth, other


def first_pass(group: Sequence[Absence], magnitudes: Magnitudes) -> int:
    """In which one of these got its first gradient."""
    names = {one.leaf for one in group}
    known = (enumerate(one.norms) for one in magnitudes.leaves if one.name in names)
    return min(step for norms in known for step, norm in norms if norm is not None)


def flat_by_now(magnitudes: Magnitudes) -> Iterator[Absence]:
    """Of what has learnt, and gets zeros for good from an op that is piecewise constant: weights
    that are rounded from some step on."""
    leaves = {one.name: one for one in magnitudes.leaves}
    for absence in magnitudes.died:
        known = leaves[absence.leaf].known if absence.leaf in leaves else ()
        is_over = len(known) > LASTING and not any(known[-LASTING:])
        if absence.reason is NoGradient.ZERO_OP and absence.trained and is_over:
            yield absence


def overflow_behind(trace: Trace) -> tuple[Event | None, tuple[Absence, ...]]:
    """The inf that a division turned into a factor of exactly 0, and the trained parameters whose
    gradient ends at such a factor: `x * rsqrt(mean(x ** 2))` is 0 wherever the square overflows."""
    scaled = [
        one
        for one in trace.magnitudes.absences
        if one.trained and not one.missing and one.reason in _SCALED_AWAY
    ]
    for event in filter(_becomes_zero, trace.hidden):
        zeros = tuple(one for one in scaled if _ends_at(one, event.hidden_by))
        if zeros or _is_lost(event):
            return event, zeros
    return None, ()


def _ends_at(absence: Absence, hider: Call | None) -> bool:
    """Whether a gradient may end at the 0 that a call gave: where a factor became 0 is known of one
    that had no graph."""
    place = hider.location if hider is not None and hider.seq is None else None
    return place is None or absence.related == replace(place, module=None)


def _is_lost(event: Event) -> bool:
    """Whether the 0 that a division makes of this inf is wrong whatever the inf stands for: a root
    of it was taken before, and the reciprocal of that is no small number in its dtype. In float16
    it is 0.004 at least; `1 / (1 + exp(-x))` is rightly 0."""
    known = finfo(evidence.dtype(event))
    has_root = any(call.op in ("sqrt", "rsqrt") for call in event.path)
    has_root &= has(event.path[-1].op, Trait.DIVIDES)
    return has_root and known.max**-0.5 > known.eps


def _becomes_zero(event: Event) -> bool:
    is_born = event.kind is Kind.BIRTH and event.phase is Phase.FORWARD
    hider = event.hidden_by
    is_zeroed = hider is not None and (hider.seq is None or has(hider.op, Trait.DIVIDES))
    return is_born and is_zeroed and evidence.leaves_range(event)


def end_of_learning(trace: Trace, magnitudes: Magnitudes) -> Absence | None:
    """Where the first gradient is lost, if by the end no trained parameter gets one any more. None
    where one still learns, or where there is nothing left to learn."""
    trained = all_trained(magnitudes)
    loss = trace.steps[-1].loss if trace.steps else None
    if not trained or loss is None or not math.isfinite(loss):
        return None
    if not loss and not _breaks_off([one.loss or 0.0 for one in trace.steps]):
        return None  # a loss of 0 has no slope: training is done
    if not all(any(one.known[:-LASTING]) and not any(one.known[-LASTING:]) for one in trained):
        return None
    # What a model that has come to rest is flat in. A clamp or a choice is often meant to be, but
    # not that of torch's own distributions, where the model is worse than it was at first.
    kinds, first = Trait.RECTIFIES | Trait.SATURATES, trace.steps[0].loss
    is_worse = first is not None and loss > first
    return next(
        (
            one
            for one in magnitudes.died
            if not loss or has(one.node or "", kinds) or (is_worse and is_torchs_own(one))
        ),
        None,
    )


def _breaks_off(losses: Sequence[float]) -> bool:
    """Whether a loss is 0 from one step to the next, without having fallen much before."""
    most = max(map(abs, losses), default=0.0)
    above = [abs(one) for one in losses if abs(one) > _ROUNDED * most]
    return bool(above) and above[-1] >= _HARDLY * above[0]


def is_torchs_own(absence: Absence) -> bool:
    """Whether the gradient ends in a clamp that a library has written."""
    is_inside = absence.call is not None and absence.call.inner is not None
    return is_inside and has(absence.node or "", Trait.CLAMPS)


def all_trained(magnitudes: Magnitudes) -> list[Leaf]:
    """The leaves that an optimizer holds, and whose gradient was looked at."""
    return [leaf for leaf in magnitudes.leaves if leaf.trained and leaf.known]


def zero_since(leaf: Leaf) -> int:
    """The first step of those at the end without a gradient."""
    alive = [step for step, norm in enumerate(leaf.norms) if norm]
    return alive[-1] + 1


def replaced_by(group: Sequence[Absence]) -> list[tuple[Location, ...]]:
    """Where parameters that nobody holds took the place of others, with the lines that led
    there, in the order of the text."""
    found = dict.fromkeys(lines for one in group for lines in one.replaced_by)
    return sorted(found, key=lambda lines: (lines[0].file, lines[0].line))


def made_anew(group: Sequence[Absence], magnitudes: Magnitudes) -> ask.MakeOptimizerAnew | None:
    """Asked where the program has put other parameters in the place of those of an optimizer."""
    made, places = group[0].made, replaced_by(group)
    if made is None or not places:
        return None
    its = (one.scheduled_at for one in magnitudes.usages if one.made == made)
    return ask.MakeOptimizerAnew(group[0].reason, made, tuple(places), next(its, ()))
