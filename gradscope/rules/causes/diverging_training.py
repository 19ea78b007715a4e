"""A loss that grows from step to step because the updates overshoot."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from gradscope.facts import (
    Clearing,
    Finding,
    Fix,
    Magnitudes,
    Phase,
    Root,
    Strength,
    Subject,
    Summed,
    Symptom,
    Trace,
    Trouble,
    Update,
    number,
)
from gradscope.facts import requests as ask
from gradscope.rules.reading import divergence
from gradscope.rules.rule import Asked, Rule, places
from gradscope.rules.wording import phrases

_INNOCENT = "No op is at fault; an overflow is only where the growth ends."
# For each setting the mechanism, and the number that shows it.
_WORDS = {
    divergence.Setting.ASCENT: (
        "{who} adds the gradient to the parameters (line {line}), where descent subtracts it: each"
        " step goes up the slope of the loss.",
        "the gradient is added in line {line}",
    ),
    divergence.Setting.ACCUMULATED: (
        "Each step of {optimizer} uses the sum of the gradients of {passes} backward passes, where"
        " their mean was meant: lr {lr:g} acts like {of_passes:g}.",
        "{passes} backward passes for each step",
    ),
    divergence.Setting.UNBOUNDED: (
        "Nothing bounds this loss from below: the lower it gets, the larger its gradient, and the"
        " longer the next step. A log-likelihood or a reward is to be maximised: its negative is"
        " the loss.",
        "the loss is below 0",
    ),
    divergence.Setting.GROWING: (
        "The schedule multiplies the learning rate by more than 1 again and again. It has come to"
        " {lr:g}, and the steps get longer and longer, until they overshoot.",
        "lr {lr:g} at last",
    ),
}


class DivergingTraining(Rule):
    """
    ## What it does
    Finds a loss that grows from step to step because each update overshoots.

    ## Why is this bad?
    A step longer than the curvature allows lands farther from the minimum than it started. The loss
    grows by a constant factor a step until it overflows, in an op that is not at fault. Gradients
    that are never cleared, and a sum in place of a mean, lengthen the step in the same way.

    ## Example
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(2))
    - optimizer = torch.optim.SGD([w], lr=3.0)
    + optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point.

    ## Options
    `thresholds: {loss-growth: 100}` in the configuration: of losses in a row before they
    overflow; a loss that stays finite has to grow ten times as much.
    """

    code = "GS404"
    name = "diverging-training"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        if not magnitudes.updates:
            return
        judge = partial(divergence.is_divergence, is_refused=trace.raised is not None)
        for rise in (divergence.rise_of(trace.steps), divergence.climb_of(trace.steps)):
            if rise is not None and judge(rise, roots, magnitudes, self.limits.loss_growth):
                yield self._about(rise, trace, magnitudes, roots)
                return
        if not roots and trace.steps:
            by_clearing: dict[Clearing | None, list[list[Update]]] = defaultdict(list)
            for updates in divergence.never_cleared(magnitudes):
                by_clearing[_known_clearing(updates)].append(updates)
            for clearing, places in by_clearing.items():  # what is mended at once is told once
                yield self._not_learning(trace, places, clearing)

    def _about(
        self, rise: divergence.Rise, trace: Trace, magnitudes: Magnitudes, roots: tuple[Root, ...]
    ) -> Finding:
        updates = magnitudes.updates
        # A schedule may have ended at almost 0 by then: those that were long did it.
        late = [one for one in updates if one.step >= rise.first] or updates[-1:]
        update = max(reversed(late), key=lambda one: one.lr or 0.0)
        stale = any(one.stale for one in updates)
        fault = None if stale else divergence.overshoot(magnitudes, rise, trace.steps)
        total = None
        if not stale and fault is None:
            total = divergence.blamed_sum(magnitudes.summed, rise, update)
        is_unbounded = fault is not None and fault.setting is divergence.Setting.UNBOUNDED
        cleared = ask.ClearGradients(_known_clearing(updates))
        why, number_of_fault = _of_setting(fault, updates[-1]) if fault else (_why(update), "")
        why_sum, number_of_sum = _of_sum(total, update)
        if stale:
            why = _why_stale(update)
        steps = update.location, _STALE if stale else f"steps {_at(update)}".strip()
        place, label = steps
        if total is not None and total.location is not None:
            place, label = total.location, f"adds up {total.terms:,} terms, no mean"
        numbers = (
            f"loss by step: {phrases.series([_sign(rise) * loss for loss in rise.losses])}",
            _norms(magnitudes.totals(), rise),
            f"{update.optimizer or 'an update by hand'} {_at(update)}".strip(),
            number_of_fault,
            number_of_sum,
        )
        last = rise.first + rise.rises
        own = Symptom(Trouble.DIVERGING, Subject.LOSS, last, "loss")
        return self.found(
            _headline(rise),
            why + why_sum,
            step=rise.first + 1,
            op=roots[0].event.op if roots else "step",
            location=place,
            label=label,
            related=places(("use", *steps)) if place != update.location else (),
            evidence={
                "losses": list(rise.losses),
                "factor": rise.factor,
                "lr": update.lr,
                "optimizer": update.optimizer,
                "stale_gradients": stale,
                "summed_terms": total.terms if total is not None else None,
            },
            numbers=tuple(filter(None, numbers)),
            symptoms=(own, *(symptom for root in roots for symptom in root.symptoms)),
            chain=roots[0].chain if roots else (),
            fixes=(
                *([cleared] if stale else ()),
                *(_turned(trace) if is_unbounded else ()),
                *([_repair(fault)] if fault is not None else ()),
                *([ask.AverageLoss(total)] if total is not None else ()),
                *(() if is_unbounded else _shorter(rise, update, stale, magnitudes)),
            ),
        )

    def _not_learning(
        self, trace: Trace, groups: Sequence[Sequence[Update]], clearing: Clearing | None
    ) -> Finding:
        first = groups[0]
        own = {one.step for one in first}
        losses = [step.loss or 0.0 for step in trace.steps if step.index in own]
        others = (updates[-1].location for updates in groups[1:])
        return self.found(
            f"the gradients are never cleared, and over {len(losses)} steps the loss goes from"
            f" {number(losses[0])} to {number(losses[-1])}",
            "The gradients were not cleared between one step and the next backward, so each step"
            " goes along the sum of all gradients so far. That is a momentum of 1, which never"
            " forgets: training swings around its minimum, or away from it.",
            step=1,
            op="step",
            location=first[-1].location,
            label=_STALE,
            evidence={"losses": losses[:64], "lr": first[-1].lr, "stale_gradients": True},
            numbers=(f"loss by step: {phrases.series(losses)}",),
            related=places(*(("use", one, "and so does this") for one in others)),
            fixes=(ask.ClearGradients(clearing),),
            strength=Strength.FALLBACK,
        )


_STANDARDISED = Fix(
    "data",
    "bring the inputs, and targets far from 0, to mean 0 and spread 1",
    "display-only",
    "x = (x - x.mean(0)) / x.std(0)",
)
_STALE = "adds the gradients of earlier steps too"


def _headline(rise: divergence.Rise) -> str:
    first, last = rise.first, rise.first + rise.rises
    start, end = number(_sign(rise) * rise.losses[0]), number(_sign(rise) * rise.end)
    size, total = f"x{number(rise.factor, 3)} per step", number(rise.total, 3)
    if rise.leaps:
        leap = f"the loss leaps x{number(rise.leap, 3)} in one step"
        return f"{leap}, and at step {last} is still at {end}, x{total} its start"
    if rise.falls:
        return f"the loss falls without end, {size} from step {first} to {last}: {start} to {end}"
    if rise.steady:
        return f"the loss grows {size} from step {first} to {last}: {start} to {end}"
    steps = f"on average from step {first} to {last}"
    return f"the loss grows {size} {steps}: {start} to above {end}"


def _sign(rise: divergence.Rise) -> int:
    return -1 if rise.falls else 1


def _at(update: Update) -> str:
    return f"with lr {update.lr:g}" if update.lr is not None else ""


def _why_stale(update: Update) -> str:
    step = "`optimizer.step()`" if update.optimizer else "an update"
    return (
        f"The gradients were not cleared between {step} and the next backward, so each step goes"
        " along the sum of all gradients so far and overshoots more and more."
    )


def _of_setting(fault: divergence.Overshoot, update: Update) -> tuple[str, str]:
    """The mechanism and the number for a setting that explains the growth by itself, of the last
    update."""
    lr = update.lr or 0.0
    given = {
        "lr": lr,
        "who": f"`{update.optimizer}`" if update.optimizer else "The update",
        "line": update.ascends,
        "optimizer": update.optimizer,
        "passes": fault.passes,
        "of_passes": lr * fault.passes,
    }
    why, shown = (template.format_map(given) for template in _WORDS[fault.setting])
    return f"{why} {_INNOCENT}", shown


def _why(update: Update) -> str:
    if update.blind_to_scale and update.lr is not None:
        return (
            f"{update.optimizer} divides by the size of the gradient, so each step moves every"
            f" weight by about the learning rate itself, {update.lr:g}: farther than the minimum is"
            f" away. {_INNOCENT}"
        )
    step = f"step of {update.optimizer}" if update.optimizer else "update"
    return (
        f"Each {f'{step} {_at(update)}'.strip()} lands farther from the minimum than it started, so"
        f" the next gradient is larger and so is the next step. {_INNOCENT}"
    )


def _of_sum(total: Summed | None, update: Update) -> tuple[str, str]:
    """What a sum adds to the mechanism, and the number that shows it."""
    if total is None or update.lr is None:
        return "", ""
    terms, product = f"{total.terms:,}", f"{update.lr * total.terms:g}"
    return (
        f" The loss is a sum over {terms} terms, so its gradient, and with it each step, is"
        f" {terms} times that of the mean: lr {update.lr:g} acts like {product}, and it grows with"
        " the batch.",
        f"`{total.op}` adds up {terms} terms: lr x terms = {product}",
    )


def _norms(totals: tuple[float, ...], rise: divergence.Rise) -> str:
    shown = [norm for norm in totals[rise.first : rise.first + rise.rises + 1] if norm]
    return f"gradient norm by step: {phrases.series(shown)}" if shown else ""


def _repair(fault: divergence.Overshoot) -> Asked:
    if fault.request is not None:
        return fault.request
    title = "minimise its negative, if it is to be large; else bound it from below: by a margin, or"
    title += " normalise what it measures"
    return Fix("stable-op", title, "display-only", "-distribution.log_prob(target).mean()")


def _turned(trace: Trace) -> Iterator[Asked]:
    """The other sign, where one backward is called in all steps: of two, each has a loss."""
    places = {one.backward_at for one in trace.steps}
    place = places.pop() if len(places) == 1 else None
    if place is not None:
        yield ask.TurnSign(place)


def _shorter(
    rise: divergence.Rise, update: Update, stale: bool, magnitudes: Magnitudes
) -> Iterator[Asked]:
    """Ways to take shorter steps, none of which is one to a minimum that a loss does not have."""
    lower = ask.LowerRate()
    if update.lr is not None:
        # What is steep is the sum, or has no rate; or any rate holds, once the first leap is over.
        can_try = not stale and not update.blind_to_scale
        steps = 2 * (rise.first + 1 + len(rise.losses)) if can_try else None
        new = divergence.shorter_lr(rise, update.lr, update.blind_to_scale, magnitudes.leaves)
        lower = ask.LowerRate(update.lr, new, update, steps)
    yield lower
    yield _STANDARDISED
    # To those that divide by the size of the gradient, a shorter one is the same.
    if not update.blind_to_scale:
        yield ask.ClipNorm()


def _known_clearing(updates: Iterable[Update]) -> Clearing | None:
    return next((one.clearing for one in updates if one.clearing is not None), None)
