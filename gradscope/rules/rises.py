"""Losses that grow from step to step, and what their growth says of the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradscope.facts import Step


@dataclass(frozen=True, slots=True)
class Rise:
    """The losses that grew in size, one after the other, up to the end of the finite ones. Below
    zero they fall: a reward that is maximised, or a density, until they overflow."""

    first: int
    losses: tuple[float, ...]  # without their sign
    falls: bool = False

    @property
    def rises(self) -> int:
        return len(self.losses) - 1

    @property
    def total(self) -> float:
        return self.losses[-1] / self.losses[0] if self.losses[0] else math.inf

    @property
    def factor(self) -> float:
        """The growth from one step to the next, their geometric mean."""
        return float(self.total ** (1 / self.rises)) if self.rises else 1.0


def rise_of(steps: tuple[Step, ...]) -> Rise | None:
    """The unbroken growth at the end of the losses; None where the last finite ones do not grow."""
    finite: list[float] = []
    for step in steps:
        if step.loss is None or not math.isfinite(step.loss):
            break
        finite.append(step.loss)
    start = len(finite) - 1
    while start > 0 and abs(finite[start - 1]) < abs(finite[start]):
        start -= 1
    if len(finite) - start < 2:
        return None
    return Rise(start, tuple(map(abs, finite[start:])), falls=finite[-1] < 0)


def stable_lr(rise: Rise, lr: float) -> float:
    """The step at which a quadratic loss falls fastest.

    On a quadratic of curvature c, gradient descent multiplies the distance to the minimum by
    |1 - lr c| a step, and the loss by its square. From the growth seen, c = (1 + growth) / lr,
    and lr = 1 / c goes straight to the minimum; at 2 / c it starts to diverge.
    """
    return float(f"{lr / (1 + math.sqrt(rise.factor)):.1g}")


def largest_stable_lr(rise: Rise, lr: float) -> float:
    """2 / c, as `stable_lr` has it."""
    return 2 * lr / (1 + math.sqrt(rise.factor))
