"""Whether what a fix leaves is good to train with, and not just finite. Pure functions."""

import math
from collections.abc import Iterable, Set
from dataclasses import replace
from itertools import chain
from statistics import median_low

from gradscope.facts import (
    DEFAULT_LIMITS,
    Finding,
    Holds,
    Phase,
    Severity,
    Spectrum,
    Subject,
    Trace,
    Trouble,
    Verified,
    verdicts,
)
from gradscope.repair.compare import BOUNDS, EMPTY, HOLD_OFF, PUTS_VALUES, SCALED, Seen, cause_of
from gradscope.repair.differences import (
    distance,
    has_finite_loss,
    learns,
    loss_of,
    pairs,
    total_norm,
)
from gradscope.rules.order import CONSEQUENCES

LOSS = DEFAULT_LIMITS.loss_growth  # times the losses beside it, or 1: noise stays well below it
LEAP = 1e6  # where no other loss was seen: what is left of a division by an eps
NORM = 1e3  # times the norms beside it: those of batches differ by a hundred at most
# Times the other elements of one gradient. A root kept at 1e-12, as torch keeps norms, passes 1e6
# of what comes in, a division by 1e-8 passes 1e8.
ELEMENTS = 1e7
LEAF = 1e5  # times those of the other gradients, of one that was bad throughout
MINIMUM = 1e-2  # of a loss that has no slope left: acos kept at 1 - 1e-6 is 1e-3

TOO_LARGE = CONSEQUENCES["exploding-gradient"]

# Of values in float64. A difference that is 0 but for rounding is inverted to more than SINGULAR.
SINGULAR = 1e12
# The smallest normal float32. A gradient below it is left where a bound too small for the program's
# own dtype holds the operand: float64 alone stands on the bound, and learns nothing there.
FLUSHED = 1.18e-38
SAME_RUN = 0.1  # of what was finite before: half precision leaves two digits
# What float32 leaves of numbers up to a hundred: what is below it is 0 but for rounding.
ROUNDED = 1e-5
FORM_OFF = 1e-2  # of a form in float64: what has cancelled in it, where all else rounds as well
CLOSE = 1e-3  # of the loss and of each gradient: what float32 and a small eps leave of them
HALF_AS_LARGE = 0.5  # as the largest element
DISTURBED = 0.1  # of the largest element: a mean over fewer elements moves less
# Of the larger of two losses: a fix beyond it gives other values than the true ones. Half precision
# leaves two digits.
OTHER_LOSS = {False: 0.01, True: 0.1}
OTHER_NORM = 3.0  # times: where exp ends in float64 too, the gradients of a few elements are lost
# Of the broken elements' share of the loss, with an epsilon ten times as large: what is on its way
# to a limit moves less, a logarithm at 1e-12 by a twelfth.
MOVED_BY_NUMBER = 0.05
# Where other terms make most of the loss: each broken element of a mean by 1, a logarithm by 2.3.
MOVED_AT_ALL = 1.0


def asks_for_truth(finding: Finding) -> bool:
    """Whether rounding or a range too small can be all that a finding is about."""
    lost = any(one.trouble in (Trouble.NAN, Trouble.INF) for one in finding.symptoms)
    return lost and finding.phase in (Phase.FORWARD, Phase.BACKWARD)


def is_sound(before: Trace, exact: Trace, step: int) -> bool:
    """Whether a run in float64 is the run that failed, and shows what is right at its step: at
    least a loss, where that was lost."""
    loss = loss_of(exact, step)
    if loss is None or not math.isfinite(loss):
        return False
    if not shows_gradients(exact, step):
        bad = [one for one in exact.symptoms if one.step <= step]
        only_there = all(one.subject is Subject.GRADIENT and one.step == step for one in bad)
        if has_finite_loss(before, step) or not only_there:
            return False
    elif total_norm(exact.gradients) > SINGULAR or 0 < total_norm(exact.gradients) < FLUSHED:
        return False
    if _size(before, exact, step) is not None:
        return False
    earlier = [(one.loss, loss_of(exact, one.index)) for one in before.steps[: step + 1]]
    known = [(a, b) for a, b in earlier if a is not None and b is not None and math.isfinite(a)]
    # Behind an inf a slope may be 0, as that of a logarithm is: finite, and no gradient of the run.
    failed = loss_of(before, step)
    both = () if failed is not None and math.isinf(failed) else pairs(before, exact)
    return all(_is_near(a, b, SAME_RUN) for a, b in known) and all(
        distance(a, b) <= SAME_RUN for a, b in both
    )


def shows_gradients(exact: Trace, step: int) -> bool:
    """Whether the gradients of a run in float64 are finite up to a step."""
    are_finite = bool(exact.gradients) and not any(one.bad for one in exact.gradients)
    return are_finite and not any(one.step <= step for one in exact.symptoms)


def weighed(
    verdict: Verified,
    before: Trace,
    after: Trace,
    step: int,
    exact: Trace | None,
    kind: str,
    *,
    in_half: bool = False,
    of_quotient: bool = False,
    beside: bool = False,
    is_limit: bool = False,
    at_pole: bool = False,
) -> Verified | Holds:
    """The verdict on a fix, of `kind`, that did away with its symptom. `exact` is the run in
    float64, where that is sound: it alone is the judge then; with `beside` that of a point right
    beside. `is_limit`: nothing but what it gives is right. `in_half`: the culprit computes in half
    precision. `of_quotient`: it divides what is trained by what is; `at_pole`: what is
    not 0 by 0."""
    if exact is None:
        but = _shortfall(before, after, step, kind, at_pole=at_pole) or _disturbed(
            verdict.effects, before, step, kind
        )
        but = but or (_unlearnt(before, after, step) if of_quotient else None)
        return verdict if but is None else Holds(verdict.effects, but)
    is_whole = shows_gradients(exact, step)
    norm = total_norm(exact.gradients) if is_whole else None
    is_met = is_whole and _is_met(after, exact, step)
    truth = verdicts.Truth(loss_of(exact, step) or 0.0, norm, is_met, beside)
    effects = replace(verdict.effects, truth=truth)
    # Of what has a limit and a slope, any other number in its place is a choice, and not theirs.
    if (is_limit and not is_met) or _is_off(after, step, truth, in_half=in_half):
        return Holds(effects, verdicts.OffTruth())
    if not is_whole and (but := _shortfall(before, after, step, kind, at_pole=at_pole)) is not None:
        return Holds(effects, but)
    return replace(verdict, effects=effects)


def _shortfall(
    before: Trace, after: Trace, step: int, kind: str, *, at_pole: bool = False
) -> verdicts.Shortfall | None:
    # Where the loss was finite, the slope of what a mask keeps out of it, or of a norm at 0, is 0.
    # A bound at a pole is far from what it stands for: a 0 behind it says nothing of a minimum.
    # Nor is a loss of 0 behind what had raised.
    is_bound = kind in BOUNDS and not at_pole and before.raised is None
    is_least = abs(loss_of(after, step) or 0.0) <= MINIMUM
    at_minimum = is_bound and is_least
    is_right = has_finite_loss(before, step) or at_minimum
    if not is_least and _went_out(before, after, step):
        return verdicts.NothingToLearn()
    if kind in (*HOLD_OFF, "init") and not is_right and learns(before) and not learns(after):
        if not _was_done(before, step):
            return verdicts.NothingToLearn()
    but = _size(before, after, step)
    # A form that computes the same gives what such data has.
    is_large = isinstance(but, verdicts.HugeLoss | verdicts.HugeGradient | verdicts.HugeElements)
    is_usual = kind == "stable-op" and is_large and total_norm(after.gradients) <= LEAP
    return None if is_usual or kind == SCALED else but


def _was_done(before: Trace, step: int) -> bool:
    """Whether the pass before the one that failed had nothing to learn either: of the same batch,
    where an update asks for two."""
    norms = [leaf.norms[step - 1] for leaf in before.magnitudes.leaves if len(leaf.norms) >= step]
    return step > 0 and bool(norms) and not any(one is None or one for one in norms)


def _went_out(before: Trace, after: Trace, step: int) -> bool:
    """Whether nothing is left of a gradient that was finite, however large."""
    was, now = _norms(before)[step : step + 1], after.gradients
    is_finite = 0 < sum(was) < math.inf and not any(one.bad for one in now)
    return is_finite and bool(now) and not total_norm(now)


def _unlearnt(before: Trace, after: Trace, step: int) -> verdicts.NothingToLearn | None:
    """A leaf without a gradient, where 0 / 0 had broken all of it: its direction has none at 0, and
    what goes on from there, as a rotation does, may have."""
    if has_finite_loss(before, step):
        return None
    lost = (a for a, b in pairs(before, after) if a.bad == a.numel and not (b.norm or b.bad))
    return next((verdicts.NothingToLearn(one.name) for one in lost), None)


def _disturbed(
    effects: verdicts.Effects, before: Trace, step: int, kind: str
) -> verdicts.Disturbs | None:
    """What moves although the fix is one for a few elements alone, none of which is among it; or
    a loss that was right, by more than a small number in the place of 0 can move it."""
    least = MINIMUM if kind in BOUNDS | {EMPTY} else 0.0
    # An empty case may have had a part in what it is made of now.
    most = DISTURBED if kind == EMPTY else CLOSE
    most_moved = math.inf if least else DISTURBED
    if kind == "epsilon":  # beside a few elements, which the others may be summed up with
        most_moved = HALF_AS_LARGE
    is_slope = any(one.bad for one in before.gradients)
    for move in effects.moves if kind in PUTS_VALUES and (is_slope or not least) else ():
        match move:
            case verdicts.GradientMove(_, share) if (share or 0.0) > most_moved:
                return verdicts.Disturbs(move)
            case verdicts.LossMove(at, amount) if at == step or not least:
                if amount > max(least, most * abs(loss_of(before, at) or 0.0)):
                    return verdicts.Disturbs(move)
    return None


def refuses_zeros(trace: Trace) -> bool:
    """Whether the program was ended by a matrix that is 0 everywhere."""
    why = trace.raised.why if trace.raised is not None else None
    return isinstance(why, Spectrum) and why.largest == 0


def may_be_decided(before: Trace, step: int, kind: str) -> bool:
    """Whether the values that a fix gives may be made by the number that it writes."""
    return kind in PUTS_VALUES and not has_finite_loss(before, step)


def undecided(
    verdict: Verified,
    after: Trace,
    other: Trace,
    step: int,
    share: float = 1.0,
    kinds: Set[str] = frozenset(),
) -> Verified | Holds:
    """The verdict on a fix of these kinds that writes a number; `other` is the run with another
    one, `share` the part of the elements that broke: of a mean over many, each one has as much.
    What is multiplied by 0, as at the start, shows in the gradient alone."""
    loss, moved = loss_of(after, step), loss_of(other, step)
    if loss is None or moved is None:
        return verdict
    by, size = abs(moved - loss), max(abs(loss), abs(moved))
    if by <= MOVED_BY_NUMBER * share * size and by <= max(MOVED_AT_ALL * share, CLOSE * size):
        leaf = _decided(after, other) if kinds & BOUNDS and by <= ROUNDED * size else ""
        return Holds(verdict.effects, verdicts.NumberDecides(moved, leaf)) if leaf else verdict
    if max(abs(loss), abs(moved)) <= MINIMUM:  # both stand for 0: equal vectors have no angle
        return verdict
    return Holds(verdict.effects, verdicts.NumberDecides(moved))


def _decided(after: Trace, other: Trace) -> str:
    """A leaf whose gradient another number makes another one; empty where there is none."""
    usual = _usual(after, other)
    moved = (
        a.name
        for a, b in pairs(after, other)
        if _largest(a.sample) > ROUNDED * usual and distance(a, b) > MOVED_BY_NUMBER
    )
    return next(moved, "")


def gone_on(verdict: Verified, before: Trace, ahead: Seen, step: int) -> Verified | Holds:
    """The verdict on a fix with which the program ran on for some steps. What autograd has refused
    is mended by what is differentiated, and may leave something out of that."""
    but = _beyond(before, ahead, step)
    if but is None and before.refusal is not None:
        but = _cut_off(ahead.trace, step)
    return verdict if but is None else Holds(verdict.effects, but)


def _cut_off(ahead: Trace, step: int) -> verdicts.NothingToLearn | None:
    """A leaf that got a gradient before the pass that failed, and gets none in any from then on."""
    leaves = ahead.magnitudes.leaves
    # In a pass of which no norm is known nobody has measured any; that of another loss may have
    # nothing for a leaf.
    places = {one.index: one.backward_at for one in ahead.steps}
    measured = any(
        norm is not None and places.get(index) == places.get(step)
        for leaf in leaves
        for index, norm in enumerate(leaf.norms[step:], step)
    )
    lost = (
        leaf.name
        for leaf in leaves
        if any(leaf.norms[:step]) and len(leaf.norms) > step + 1 and not any(leaf.norms[step:])
    )
    # Passes that others ask for may give it one, of which its own steps see nothing.
    idle = (
        one.held[0]
        for one in ahead.magnitudes.usages
        if one.updates > 1 and one.held and not (one.used or one.handled)
    )
    name = next(chain(lost if measured else (), idle), None)
    return verdicts.NothingToLearn(name) if name is not None else None


def rounds_alike(before: Trace, after: Trace, exact: Trace, step: int) -> bool:
    """Whether what a fix leaves as it was is the same in float64: else rounding is all over the
    program, as where it computes in half precision. Not where a fix leaves nothing."""
    losses = [(one.loss, loss_of(exact, one.index)) for one in before.steps[:step]]
    known = [(a, b) for a, b in losses if a is not None and b is not None]
    kept = {a.name for a, b in pairs(before, after) if a.bad < a.numel and not distance(a, b)}
    both = [distance(a, b) for a, b in pairs(before, exact) if a.name in kept]
    is_known = bool(known or both)
    return is_known and max(both, default=0.0) <= CLOSE and all(_is_near(*p, CLOSE) for p in known)


def agree(one: Trace, other: Trace, step: int, share: float = CLOSE) -> bool:
    """Whether two runs give the same loss and gradients, but for that share of them."""
    both = all(shows_gradients(run, step) for run in (one, other))
    return both and _is_met(one, other, step, share)


def _is_met(after: Trace, exact: Trace, step: int, share: float = CLOSE) -> bool:
    loss, right = loss_of(after, step), loss_of(exact, step)
    if loss is None or right is None:
        return False
    if max(abs(loss), abs(right)) > ROUNDED and not _is_near(loss, right, share):
        return False
    norms = total_norm(after.gradients), total_norm(exact.gradients)
    is_flat = max(abs(loss), abs(right), *norms) <= ROUNDED
    # What cancels, as the gradient of an offset that the loss does not see, is rounding alone.
    usual = _usual(exact, after)
    return is_flat or all(
        distance(a, b) <= share
        for a, b in pairs(exact, after)
        if max(_largest(a.sample), _largest(b.sample)) > ROUNDED * usual
    )


def _is_off(after: Trace, step: int, truth: verdicts.Truth, *, in_half: bool) -> bool:
    loss, norm = loss_of(after, step), total_norm(after.gradients)
    lower, upper = sorted((norm, norm if truth.gradient_norm is None else truth.gradient_norm))
    is_far = loss is not None and not _is_near(loss, truth.loss, OTHER_LOSS[in_half])
    return not truth.is_met and (is_far or upper > OTHER_NORM * lower)


def _is_near(first: float, second: float, share: float) -> bool:
    return abs(first - second) <= share * max(abs(first), abs(second))


def _size(before: Trace, after: Trace, step: int) -> verdicts.Shortfall | None:
    """What is of another size at the failing step than at those before, or than its neighbours."""
    norm, norms = total_norm(after.gradients), _norms(before)[:step]
    if any(norms) and norm > NORM * max(norms):
        return verdicts.HugeGradient(max(norms))
    # A leaf's own others may be 0 but for rounding, as the gradient of a key's bias is.
    usual = _usual(before, after)
    for first, second in pairs(before, after):
        both = zip(first.sample, second.sample, strict=False)
        healed = _largest(new for old, new in both if not math.isfinite(old))
        others = _largest(first.sample)
        if others and healed > max(ELEMENTS * others, NORM * usual):
            return verdicts.HugeElements(first.name, healed / others)
        if usual and first.bad == first.numel and healed > LEAF * usual:
            return verdicts.HugeElements(first.name, healed / usual)
    loss, earlier = loss_of(after, step), _losses(before, step + 1)
    # Those right before an overflow have grown already: half of them are as they should be.
    most = median_low(earlier) if earlier else None
    if loss is not None and abs(loss) > (LEAP if most is None else LOSS * max(1.0, most)):
        return verdicts.HugeLoss(most)
    return None


def _usual(first: Trace, second: Trace) -> float:
    """The largest element of the gradients that both runs show, as the first one has it."""
    return max((_largest(one.sample) for one, _ in pairs(first, second)), default=0.0)


def _largest(values: Iterable[float]) -> float:
    """The size of the largest that is finite."""
    return max((abs(one) for one in values if math.isfinite(one)), default=0.0)


def _beyond(before: Trace, after: Seen, step: int) -> verdicts.Shortfall | None:
    """What comes of training on with the fix. An error at another place that is not one of too
    large values would have come without it as well."""
    for finding in after.findings:
        if finding.step > step and finding.severity is Severity.ERROR and finding.name in TOO_LARGE:
            return verdicts.Follows(finding.step, cause_of(finding))
    for one in after.trace.steps[step + 1 :]:
        earlier = (*_losses(before, step), *_losses(after.trace, one.index))
        if one.loss is not None and math.isfinite(one.loss) and leaps(one.loss, earlier):
            return verdicts.Follows(one.index, loss=one.loss)
    norms = _norms(after.trace)
    for index in range(step + 1, len(norms)):
        most = max([*_norms(before)[:step], *norms[:index]], default=0.0)
        if most and norms[index] > NORM * most:
            return verdicts.Follows(index, norm=norms[index])
    return None


def leaps(loss: float, earlier: Iterable[float]) -> bool:
    """Whether a loss is far beyond the sizes of those before it."""
    return abs(loss) > LOSS * max([1.0, *earlier])


def _losses(trace: Trace, end: int) -> list[float]:
    """The sizes of the finite losses before a step."""
    known = (one.loss for one in trace.steps[:end] if one.loss is not None)
    return [abs(loss) for loss in known if math.isfinite(loss)]


def _norms(trace: Trace) -> tuple[float, ...]:
    """The finite norms of all gradients together; 0 where nobody measured them."""
    found = trace.magnitudes.totals()
    return tuple(norm if math.isfinite(norm) else 0.0 for norm in found)
