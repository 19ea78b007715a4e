"""Losses that grow from step to step, and what their growth says of the learning rate."""

import itertools
import math
from dataclasses import dataclass

from gradscope.facts import Step, plural


@dataclass(frozen=True, slots=True)
class Rise:
    """The losses that grew in size up to the end of the finite ones. `steady`: each is larger than
    the one before. Below zero they fall: a reward that is maximised, or a density, until they
    overflow."""

    first: int
    losses: tuple[float, ...]  # without their sign
    falls: bool = False
    steady: bool = True

    @property
    def rises(self) -> int:
        return len(self.losses) - 1

    @property
    def end(self) -> float:
        """Where they have got to: where they go up and down, what the last quarter stays above."""
        return self.losses[-1] if self.steady else min(self.losses[-(len(self.losses) // 4 or 1) :])

    @property
    def total(self) -> float:
        return self.end / self.losses[0] if self.losses[0] else math.inf

    @property
    def leap(self) -> float:
        """The largest growth in one step."""
        pairs = zip(self.losses, self.losses[1:], strict=False)
        return max(after / before if before else math.inf for before, after in pairs)

    @property
    def leaps(self) -> bool:
        """Whether one step makes all of the growth, and more: the others lead back from there."""
        return not self.steady and self.leap >= self.total

    @property
    def factor(self) -> float:
        """The growth from one step to the next, their geometric mean."""
        return float(self.total ** (1 / self.rises)) if self.rises else 1.0


def rise_of(steps: tuple[Step, ...]) -> Rise | None:
    """The unbroken growth at the end of the losses; None where the last finite ones do not grow."""
    finite = _finite(steps)
    start = len(finite) - 1
    while start > 0 and abs(finite[start - 1]) < abs(finite[start]):
        start -= 1
    if len(finite) - start < 2:
        return None
    return Rise(start, tuple(map(abs, finite[start:])), falls=finite[-1] < 0)


def climb_of(steps: tuple[Step, ...]) -> Rise | None:
    """All the losses, up and down; None where there are not two."""
    finite = _finite(steps)
    if len(finite) < 2:
        return None
    return Rise(0, tuple(map(abs, finite)), falls=finite[-1] < 0, steady=False)


def _finite(steps: tuple[Step, ...]) -> list[float]:
    """The losses up to the first that is not finite."""
    known = (step.loss for step in steps)
    return [
        loss
        for loss in itertools.takewhile(lambda one: one is not None and math.isfinite(one), known)
        if loss is not None
    ]


def stable_lr(rise: Rise, lr: float) -> float:
    """The step at which a quadratic loss falls fastest.

    On a quadratic of curvature c, gradient descent multiplies the distance to the minimum by
    |1 - lr c| a step, and the loss by its square. From the growth seen, c = (1 + growth) / lr,
    and lr = 1 / c goes straight to the minimum; at 2 / c it starts to diverge.
    """
    return float(f"{lr / (1 + math.sqrt(_worst(rise))):.1g}")


def largest_stable_lr(rise: Rise, lr: float) -> float:
    """2 / c, as `stable_lr` has it."""
    return 2 * lr / (1 + math.sqrt(_worst(rise)))


def tried(holds: float | None, diverges: float, runs: int) -> str:
    """The learning rates between which training stops diverging, as further runs found them;
    `holds` is None where none of those tried did."""
    again = f"found by running again {plural(runs, 'time')}"
    if holds is None:
        return f"still diverges at lr {diverges:.3g} ({again})"
    return f"stops diverging between lr {holds:.3g} and {diverges:.3g} ({again})"


def _worst(rise: Rise) -> float:
    """What a step may make of the loss: where it goes up and down, their mean says too little."""
    return rise.factor if rise.steady else rise.leap
