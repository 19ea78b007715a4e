"""What is said of gradients that an optimizer does not use, or uses in vain."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from gradscope.facts import Schedule, Skipping, Usage, number, plural
from gradscope.ops.dtypes import FINFO
from gradscope.rules.reading.fates import Loss, Lost, moves_each
from gradscope.rules.wording import phrases


class Words(NamedTuple):
    """The headline, the mechanism, and a few words for under the carets."""

    headline: str
    why: str
    label: str


_WORDS = {
    Loss.NEVER_STEPS: Words(
        "`{optimizer}` never steps: the gradients of {passes} are cleared unused",
        "Backward gave {held} a gradient, and nobody called `step()` of the optimizer that holds"
        " them before the next `zero_grad()`. The weights stay as they were initialised.",
        "no step follows",
    ),
    Loss.ELSEWHERE: Words(
        "no parameter of `{optimizer}` gets a gradient, and {others} that it does not hold",
        "In {of} steps, no backward pass before them reached what this optimizer was given. The"
        " passes reached other parameters, which no step after them moves.",
        "is given other parameters than those of the loss",
    ),
    Loss.TWICE: Words(
        "{others} in each pass of `{optimizer}`, which is given what another optimizer holds",
        "Two optimizers step along the gradients of the same parameters ({held}). The passes before"
        " the steps of this one reach others, which no optimizer holds: they stay as they were"
        " initialised.",
        "is given what another optimizer holds",
    ),
    Loss.SKIPPED: Words(
        "the scaler has skipped the last {passes} of {of} steps of `{optimizer}`",
        "A GradScaler leaves a step out when a gradient is inf or NaN, and halves its scale, until"
        " the gradients fit. {scales}",
        "leaves the optimizer out",
    ),
    Loss.NO_RATE: Words(
        "the learning rate is 0 in all {of} steps of `{optimizer}`",
        "Each step goes along the gradient times the learning rate, which is 0.{by_factor}"
        " Gradients are computed, and the parameters stay as they were initialised.",
        "with a learning rate of 0",
    ),
    Loss.ASLEEP: Words(
        "the learning rate is 0 in the first {passes} of {of} steps of `{optimizer}`",
        "Each step goes along the gradient times the learning rate, which is 0 until step"
        " {passes}. Gradients are computed until then, and nothing is learnt from them.",
        "with a learning rate of 0 until step {passes}",
    ),
    Loss.UNMOVED: Words(
        "{of} steps of `{optimizer}` have left {held} as they were",
        "The gradients are not 0, and the learning rate is {rate}: what `step()` computes does not"
        " go into the parameters, or is too small for their dtype, which rounds it away.",
        "changes nothing",
    ),
    Loss.IDLE: Words(
        "the learning rate is {rate} in the last {passes} of {of} steps of `{optimizer}`",
        "{schedule} has brought the learning rate from {peak} to {rate} by step {since}, and the"
        " training goes on without it. {moves}Gradients are computed, and the parameters stay"
        " where they are.",
        "ends the training at step {since}",
    ),
    Loss.UPSIDE_DOWN: Words(
        "{schedule} lowers the learning rate while what it is told gets {better}: it waits for the"
        " {least}",
        "It was told {told}, and took each value but the first for no improvement. The loss has"
        " fallen all the while. An accuracy is to rise, and a loss to fall; a validation loss that"
        " rises from the first epoch on says that the model learns nothing but its own data.",
        "waits for the {least}",
    ),
    Loss.SQUARED: Words(
        "the learning rate of `{optimizer}` is at most {peak}: {base} times itself",
        "{schedule} multiplies the learning rate of the optimizer, {base}, by what its function"
        " gives. That was at most {base} as well: the rate itself, in the place of a factor, which"
        " is 1 where the rate is to be as it was given.",
        "multiplies {base} by at most {base}",
    ),
    Loss.OVERCLIPPED: Words(
        "`{optimizer}` moves a weight by {moves_by} of its size in a step: gradients of norm"
        " {total} are clipped to {bound}",
        "In each step that was looked at the clipping left at most {kept} of the gradient. In a"
        " thousand such steps the weights stay where they are; training usually moves them by about"
        " 0.001 in one.",
        "leaves {kept} of the gradient",
    ),
    Loss.ROUNDED: Words(
        "{share} of the elements with a gradient stay as they are in a step of `{optimizer}`:"
        " {dtype} rounds it away",
        "{dtype} has {digits} bits for the digits of a number, so next to {scale}, the mean size"
        " of `{leaf}`, its numbers lie {spacing} apart. A step shorter than half of that is"
        " rounded to nothing, each time: steps do not add up.",
        "changes {moved} of {of} elements",
    ),
    Loss.OVERFLOWN: Words(
        "`{optimizer}` no longer moves {held_by}: its `{key}` has become inf",
        "The optimizer keeps a running average of squared gradients and divides each step by its"
        " square root. The gradient of `{worst}` is finite, but its largest element is {largest},"
        " and the square of that is beyond {limit}, the largest {kept_as} number. An average that"
        " is inf stays so, and the steps of these elements are 0 from then on.",
        "the square of the gradient overflows",
    ),
    Loss.NORM_OVERFLOWN: Words(
        "`{optimizer}` takes a step of length 0: the norm that its gradients are clipped by is inf",
        "Each gradient is finite, but their squares add up to more than {limit}, the largest"
        " {kept_as} number: the total norm is inf. Clipping multiplies each gradient by its bound"
        " over this norm, which is 0, and the step moves nothing.",
        "multiplies each gradient by 0",
    ),
    Loss.AT_ZERO: Words(
        "{others} in each pass and stay at 0 in {of} steps of `{optimizer}`: {listed}",
        "The other parameters move. Where a step is multiplied by the size of what it is for, as by"
        " a trust ratio, what is 0 stays 0: there the plain step is to be taken.",
        "leaves what is 0 as it is",
    ),
    Loss.THROWN_AWAY: Words(
        "the gradients of {passes} of each {of} passes are thrown away",
        "`{optimizer}` steps after {of} backward passes, as if their gradients had been added up,"
        " and the gradients are cleared in between. Only the last {used} of them count.",
        "clears what no step has used",
    ),
    Loss.SWEPT: Words(
        "no step uses the gradients of a backward: they are cleared before",
        "A later backward is for the gradient of a tensor that no optimizer holds. It adds"
        " gradients to the parameters as well, and what clears these clears all that was there"
        " before: `{optimizer}` steps along what comes afterwards alone.",
        "clears what no step has used",
    ),
    Loss.USED_AGAIN: Words(
        "the gradients of `{optimizer}` are cleared once in {of} steps",
        "Until they are cleared, backward adds each gradient to those of the passes before, and"
        " each step goes along the sum: what the first of {of} steps goes along is used {of} times,"
        " that of the last one once. Either step as seldom as the gradients are cleared, or clear"
        " them as often.",
        "uses the gradients of earlier steps too",
    ),
    Loss.LEFT_OVER: Words(
        "the last {passes} of each epoch are not followed by a step of `{optimizer}`",
        "A step is taken after every {of} backward passes, and an epoch has {passes} more than"
        " that fits. Their gradients are {fate}.",
        "not reached by the last {passes}",
    ),
    Loss.NO_GROUP: Words(
        "{others} in each pass, and no group of `{optimizer}` has {them}: {listed}",
        "`{optimizer}` has groups of the weight decays {decays}, which part the parameters by what"
        " they are, and not by the layers that are to be trained: it holds other parameters of the"
        " same modules, and the weights of other ones. What fits the condition of no group stays as"
        " it was initialised. Where that is meant, `requires_grad_(False)` says so.",
        "is not given {them}",
    ),
    Loss.LEFT_OUT: Words(
        "{others} in each pass, and no optimizer holds {them}: {listed}",
        "`{optimizer}` moves what it holds ({held}) and leaves the others as they were"
        " initialised.{collected}{twice} Where that is meant, `requires_grad_(False)` says so, and"
        " saves their gradients.",
        "is not given {them}",
    ),
}
# Bits of a significand, the leading one included.
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24}


def words(lost: Lost) -> Words:
    usage, rates = lost.usage, lost.usage.rates
    schedule, skipping = usage.schedule, usage.skipping
    movement = usage.movements[-1] if usage.movements else None
    overflow = usage.overflow
    counts = lost.how in (Loss.NEVER_STEPS, Loss.LEFT_OVER)
    given = {
        "optimizer": usage.optimizer,
        "passes": plural(lost.passes, "pass", "passes") if counts else lost.passes,
        "of": f"{lost.of:,}",
        "used": lost.of - lost.passes,
        "others": _others(lost),
        "them": "it" if len(lost.others) == 1 else "them",
        "listed": phrases.listed(lost.others),
        "decays": phrases.series(tuple(one.weight_decay for one in usage.groups)),
        "held": plural(len(usage.held), "parameter"),
        "scales": _scales(skipping) if skipping else "",
        "scale": number(movement.scale if movement else 0.0, 3),
        "rate": number(rates.last, 3),
        "peak": number(rates.peak, 3),
        "since": rates.since,
        "schedule": f"`{schedule.name}`" if schedule else "Something",
        "told": phrases.series(schedule.values) if schedule else "",
        "better": "smaller" if schedule and schedule.rises else "larger",
        "least": "largest value" if schedule and schedule.rises else "least",
        "base": number((schedule.base if schedule else None) or 0.0, 3),
        "by_factor": _by_factor(schedule),
        "moves": _moves(usage),
        "moves_by": number(movement.moved if movement else 0.0, 2),
        "total": number(movement.total if movement else 0.0, 3),
        "bound": number(movement.bound if movement else 0.0, 3),
        "kept": number(max((one.kept for one in usage.movements), default=1.0), 2),
        "share": f"{lost.passes / lost.of:.0%}" if lost.of else "",
        "moved": f"{lost.of - lost.passes:,}",
        "dtype": movement.dtype if movement else "",
        "leaf": movement.leaf if movement else "",
        "digits": _DIGITS.get(movement.dtype, 53) if movement else 0,
        "spacing": number(_spacing(movement.scale, movement.dtype), 2) if movement else "",
        "held_by": plural(lost.passes, "parameter"),
        "key": overflow.key if overflow else "",
        "worst": overflow.leaf if overflow else "",
        "largest": number(overflow.largest, 3) if overflow else "",
        "kept_as": overflow.dtype if overflow else "",
        "collected": f" `{lost.collected}` has them, and is given to none." * bool(lost.collected),
        "twice": _twice(usage),
        "limit": number(FINFO[overflow.dtype].max, 3) if overflow else "",
        "fate": "cleared with the next epoch" if usage.discards else "added to the next epoch's",
    }
    return Words(*(template.format_map(given) for template in _WORDS[lost.how]))


def numbers(lost: Lost) -> Iterator[str]:
    usage = lost.usage
    if lost.how in (Loss.ELSEWHERE, Loss.TWICE, Loss.NO_GROUP, Loss.LEFT_OUT):
        yield f"get a gradient, and are not held: {phrases.listed(lost.others)}"
    if lost.how in _OF_RATES:
        yield f"lr {number(usage.rates.peak, 3)} at most, {number(usage.rates.last, 3)} at last"
    if lost.how is Loss.ROUNDED:
        shown = [f"{one.step}: {one.still:,} of {one.pulled:,}" for one in usage.movements[:6]]
        yield f"elements that stay the same, by step: {', '.join(shown)}"
    if lost.how is Loss.OVERCLIPPED:
        shown = [f"{one.step}: {number(one.total, 3)}" for one in usage.movements[:6]]
        yield f"norm before the clipping, by step: {', '.join(shown)}"
    if lost.how is Loss.USED_AGAIN:
        yield f"passes in the gradients, by step: {phrases.series(usage.piles)}"
    if lost.how in (Loss.THROWN_AWAY, Loss.LEFT_OVER):
        yield f"passes that each step used: {phrases.series(usage.cycles)}"
        yield f"{plural(usage.passes, 'backward pass', 'backward passes')}, {usage.updates} steps"
    if lost.how is Loss.NEVER_STEPS:
        yield f"without a step: {phrases.listed(usage.held)}"


_OF_RATES = (Loss.NO_RATE, Loss.ASLEEP, Loss.IDLE, Loss.UNMOVED, Loss.SQUARED, Loss.ROUNDED)


def _by_factor(schedule: Schedule | None) -> str:
    if schedule is None or not schedule.base:
        return ""
    base = number(schedule.base, 3)
    return f" The optimizer was given {base}, and `{schedule.name}` multiplies that by 0 each time."


def _others(lost: Lost) -> str:
    what = "one" if lost.how is Loss.ELSEWHERE else "a gradient"
    return plural(len(lost.others), f"parameter gets {what}", f"parameters get {what}")


def _twice(usage: Usage) -> str:
    if usage.twice_at is None:
        return ""
    return f" It was given {plural(len(usage.twice), 'parameter')} twice."


def _moves(usage: Usage) -> str:
    schedule = usage.schedule
    if schedule is None or not schedule.moves:
        return ""
    times = moves_each(usage)
    each = f": {times} times for each, and not once" if times > 1 else ""
    return f"It was moved on {schedule.moves:,} times in {usage.updates:,} steps{each}. "


def _scales(skipping: Skipping) -> str:
    if skipping.last < skipping.first:
        return f"It is down to {number(skipping.last, 3)}: they are inf or NaN in themselves."
    return (
        f"Here it is {number(skipping.last)} again each time, since the loop makes the scaler anew,"
        " or sets its scale."
    )


def _spacing(scale: float, dtype: str) -> float:
    """Of the numbers of a dtype next to one that is greater than 0."""
    return 2.0 ** (math.frexp(scale)[1] - _DIGITS.get(dtype, 53))
