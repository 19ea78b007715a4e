"""What an optimizer was told that makes its steps overshoot, whatever the loss is like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradscope.facts import (
    BoundSchedule,
    Descend,
    DivideLoss,
    Fix,
    SetOption,
    Step,
    Update,
    text_of,
)
from gradscope.rules.reading.rises import Rise
from gradscope.rules.wording.proposals import proposed

# Both are the most that training recipes use: of a velocity, and of what one step takes away.
USUAL_MOMENTUM = 0.9
USUAL_DECAY = 0.01
# `w - lr * decay * w` is `w` with the other sign and larger from here on.
TURNS_OVER = 2.0
PASSES = 4  # of backward an update, at least: a loss of two or three terms is no mean
# These divide by the size of the gradient: a loss that is N times larger takes the same steps.
BLIND_TO_SCALE = frozenset(
    "Adadelta Adafactor Adagrad Adam AdamW Adamax Muon NAdam RAdam RMSprop Rprop SparseAdam".split()
)
RAISED = 2.0  # times the first learning rate: a schedule has done that, and not by rounding


@dataclass(frozen=True, slots=True)
class Overshoot:
    """Why each step is too long, in one sentence or two, and what to do about it."""

    why: str
    number: str
    fix: Fix


def overshoot(updates: Sequence[Update], rise: Rise, steps: Sequence[Step]) -> Overshoot | None:
    """The setting that explains the growth by itself; None where it takes the loss to tell."""
    at_rise = next((one for one in updates if one.step >= rise.first), updates[-1])
    last = updates[-1]
    return (
        _momentum(last)
        or _weight_decay(last)
        or _below_zero(updates[0], last)
        or _raised(updates[0], at_rise)
        or _ascent(last)
        or _accumulated(updates, steps)
        or _unbounded(rise)
    )


def _momentum(update: Update) -> Overshoot | None:
    if update.momentum < 1:
        return None
    given = text_of(update.momentum)
    return Overshoot(
        f"Momentum {given} multiplies the velocity by itself at every step: from 1 on it never"
        " fades, and the steps grow however small the gradient is.",
        f"momentum {given}",
        proposed(SetOption(update, "momentum", update.momentum, USUAL_MOMENTUM)),
    )


def _weight_decay(update: Update) -> Overshoot | None:
    decay, lr = update.weight_decay, update.lr or 0.0
    if lr * decay <= TURNS_OVER:
        return None
    return Overshoot(
        f"Weight decay {decay:g} at lr {lr:g} takes {lr * decay:g} times the weights away from them"
        f" in each step, which multiplies them by {1 - lr * decay:g}.",
        f"lr x weight_decay = {lr * decay:g}",
        proposed(SetOption(update, "weight_decay", decay, USUAL_DECAY)),
    )


def _below_zero(first: Update, last: Update) -> Overshoot | None:
    if last.lr is None or last.lr >= 0:
        return None
    return Overshoot(
        f"The learning rate is {last.lr:.3g}, below 0: each step goes up the slope of the loss.",
        f"lr {first.lr or 0:.3g} at step {first.step}, {last.lr:.3g} at step {last.step}",
        proposed(BoundSchedule(last)),
    )


def _raised(first: Update, at_rise: Update) -> Overshoot | None:
    if (
        not first.optimizer
        or first.lr is None
        or at_rise.lr is None
        or not at_rise.lr > RAISED * first.lr > 0
    ):
        return None
    low, high = f"{first.lr:.3g}", f"{at_rise.lr:.3g}"
    return Overshoot(
        f"The schedule has raised the learning rate from {low} to {high} by step {at_rise.step},"
        " where the loss begins to grow.",
        f"lr {low} at step {first.step}, {high} at step {at_rise.step}",
        proposed(BoundSchedule(at_rise, high=at_rise.lr / 2)),
    )


def _ascent(update: Update) -> Overshoot | None:
    line = update.ascends
    if line is None or (update.lr is not None and update.lr < 0):
        return None
    who = f"`{update.optimizer}`" if update.optimizer else "The update"
    return Overshoot(
        f"{who} adds the gradient to the parameters (line {line}), where descent subtracts it: each"
        " step goes up the slope of the loss.",
        f"the gradient is added in line {line}",
        proposed(Descend(update)),
    )


def _accumulated(updates: Sequence[Update], steps: Sequence[Step]) -> Overshoot | None:
    """Gradients of many passes, whose sum is used as if it were their mean."""
    last, lr = updates[-1], updates[-1].lr
    if lr is None or not last.optimizer or last.optimizer in BLIND_TO_SCALE:
        return None
    own = [update.step for update in updates if update.location == last.location]
    gaps = {after - before for before, after in pairwise(own)}
    passes = gaps.pop() if len(gaps) == 1 else 0
    step = next((step for step in steps if step.index == last.step), None)
    if step is None or step.backward_at is None or step.scaled or passes < PASSES:
        return None
    return Overshoot(
        f"Each step of {last.optimizer} uses the sum of the gradients of {passes} backward passes,"
        f" where their mean was meant: lr {lr:g} acts like {lr * passes:g}.",
        f"{passes} backward passes for each step",
        proposed(DivideLoss(step.backward_at, passes)),
    )


def _unbounded(rise: Rise) -> Overshoot | None:
    if not rise.falls:
        return None
    return Overshoot(
        "Nothing bounds this loss from below: the lower it gets, the larger its gradient, and the"
        " longer the next step.",
        "the loss is below 0",
        Fix(
            "stable-op",
            "bound the loss from below: a margin, or normalise what it measures",
            "display-only",
            "torch.relu(difference + margin)",
        ),
    )
