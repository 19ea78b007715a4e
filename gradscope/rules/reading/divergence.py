"""Losses that grow from step to step, what their growth says of the learning rate, whether training
diverges, and what of its updates tells why: as steps that use the sum of the gradients of several
passes as if it were their mean."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto

from gradscope.dataclass import dataclass
from gradscope.facts import Leaf, Location, Magnitudes, Root, Step, Summed, Update, Usage, plural
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules import cutoffs
from gradscope.rules.reading.lost import backward_of


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

    @property
    def worst(self) -> float:
        """What a step may make of the loss: where it goes up and down, a mean says too little."""
        return self.factor if self.steady else self.leap


def rise_of(steps: tuple[Step, ...]) -> Rise | None:
    """The unbroken growth at the end of the losses; None where the last finite ones do not grow."""
    steps = _of_one_phase(steps)
    finite = _finite(steps)
    start = len(finite) - 1
    while start > 0 and abs(finite[start - 1]) < abs(finite[start]):
        start -= 1
    if len(finite) - start < 2:
        return None
    first = steps[0].index + start
    return Rise(first, tuple(map(abs, finite[start:])), falls=finite[-1] < 0)


def climb_of(steps: tuple[Step, ...]) -> Rise | None:
    """All the losses, up and down; None where there are not two. What an optimizer only tried, as a
    line search does, counts as the loss from which it did."""
    steps = _of_one_phase(steps)
    known = _finite(itertools.accumulate(steps, lambda last, one: last if one.tried else one))
    # Beside the first ones of exactly 0, as of an empty queue: nothing is told by how often they go
    # into the others.
    finite = list(itertools.dropwhile(lambda loss: not loss, known))
    if len(finite) < 2:
        return None
    first = steps[0].index + len(known) - len(finite)
    return Rise(first, tuple(map(abs, finite)), falls=finite[-1] < 0, steady=False)


def _of_one_phase(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Those since backward was first called where the last one was: what a program trains before,
    as a model that it starts from, has another loss."""
    last = steps[-1].backward_at if steps else None
    return tuple(itertools.dropwhile(lambda one: one.backward_at != last, steps))


def _finite(steps: Iterable[Step]) -> list[float]:
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
    return float(f"{lr / (1 + math.sqrt(rise.worst)):.1g}")


def tried(holds: float | None, diverges: float, runs: int) -> str:
    """The learning rates between which training stops diverging, as further runs found them;
    `holds` is None where none of those tried did."""
    again = f"found by running again {plural(runs, 'time')}"
    if holds is None:
        return f"still diverges at lr {diverges:.3g} ({again})"
    return f"stops diverging between lr {holds:.3g} and {diverges:.3g} ({again})"


def is_divergence(
    rise: Rise, roots: tuple[Root, ...], magnitudes: Magnitudes, limit: float, *, is_refused: bool
) -> bool:
    """Whether losses that grew, by `limit` at least, are the fault of the steps, and not of an op
    or of the data. `is_refused`: an op has refused the numbers to which they have led, as a scale
    of 0."""
    if not roots and not (is_refused and rise.falls):
        trained = [leaf for leaf in magnitudes.leaves if leaf.trained]
        if any(leaf.remade for leaf in trained) and not any(leaf.stays for leaf in trained):
            return False  # no step was taken from where another one had led
        moved = growth_of_weights(magnitudes.leaves)
        factor = cutoffs.FINITE_GROWTH
        least = limit / factor if moved >= cutoffs.GROWN else factor * limit
        large = rise.rises >= cutoffs.FINITE_RISES and rise.total >= least
        # Of harder data the weights know nothing.
        return large and not rise.falls and not 1 / cutoffs.MOVED <= moved <= cutoffs.MOVED
    # A loss that has fallen so far below zero is minimised the wrong way round, or has no minimum:
    # whatever op its values leave the range in. An error that is measured grows above zero.
    if rise.falls and rise.rises >= cutoffs.FINITE_RISES:
        return rise.total >= cutoffs.FINITE_GROWTH * limit
    # An overflow in an op that grows slowly is the loop's own growth arriving there. One in `exp`
    # or a division is a cause of its own, whatever came before.
    if any(not has(root.event.op, Trait.GROWS_SLOWLY) for root in roots):
        return False
    return rise.total >= (limit if rise.rises > 1 else cutoffs.LEAP * limit)


def by_place(updates: Iterable[Update]) -> Iterable[list[Update]]:
    """The updates of each place in the source, and of each optimizer there, in their order."""
    places: dict[tuple[Location | None, ...], list[Update]] = defaultdict(list)
    for update in updates:
        places[update.location, update.made].append(update)
    return places.values()


def never_cleared(magnitudes: Magnitudes) -> Iterator[list[Update]]:
    """The updates in one place that, but for the first, each used the gradients of the one before
    as well, for each such place."""
    for updates in by_place(magnitudes.updates):
        stale = [update.stale for update in updates[1:] if update.stale is not None]
        if len(stale) >= cutoffs.FEWEST_STALE and all(stale):
            yield updates


class Setting(Enum):
    """What makes the steps overshoot, beside their length."""

    ASCENT = auto()
    ACCUMULATED = auto()  # gradients of many passes, whose sum is used as if it were their mean
    UNBOUNDED = auto()  # the loss, from below
    GROWING = auto()  # the learning rate, by its schedule


@dataclass(frozen=True, slots=True)
class Overshoot:
    """Why each step is too long, as the last update shows, and what mends it: None where advice
    alone does."""

    setting: Setting
    request: ask.Request | None = None
    passes: int = 0


def overshoot(magnitudes: Magnitudes, rise: Rise, steps: Sequence[Step]) -> Overshoot | None:
    """The setting that explains the growth by itself; None where it takes the loss to tell."""
    last = magnitudes.updates[-1]
    own = [usage for usage in magnitudes.usages if usage.steps_at == last.location]
    if last.ascends is not None:
        return Overshoot(Setting.ASCENT, ask.Descend(last))
    if (divided := _accumulated(own, magnitudes, steps)) is not None:
        return Overshoot(Setting.ACCUMULATED, divided, divided.passes)
    for schedule in (one.schedule for one in own if one.schedule is not None):
        if schedule.gamma is not None and schedule.gamma > 1.0:
            return Overshoot(Setting.GROWING, ask.DecayRate(schedule))
    return Overshoot(Setting.UNBOUNDED) if rise.falls else None


def _accumulated(
    own: Iterable[Usage], magnitudes: Magnitudes, steps: Sequence[Step]
) -> ask.DivideLoss | None:
    last = magnitudes.updates[-1]
    if last.lr is None or not last.optimizer or last.blind_to_scale:
        return None
    found = next(filter(None, (undivided(one, magnitudes, steps) for one in own)), None)
    return found if found is not None and found.passes >= cutoffs.FEWEST_TERMS else None


def blamed_sum(total: Summed | None, rise: Rise, update: Update) -> Summed | None:
    """The sum in the loss, where the mean would have kept the steps short enough. Of a loss that
    leaps by so much no quadratic tells which steps these are."""
    if total is None or update.lr is None or update.blind_to_scale:
        return None
    stable = 2 * update.lr / (1 + math.sqrt(rise.worst))  # 2 / c, as `stable_lr` has it
    is_told = stable > cutoffs.SHORTEST_STEP * update.lr
    return total if update.lr / total.terms < stable or not is_told else None


def shorter_lr(rise: Rise, lr: float, blind: bool, leaves: Sequence[Leaf]) -> float:
    """A learning rate to go on with. What divides by the size of the gradient moves each weight by
    about the rate itself (Kingma and Ba, 2015, section 2.1), however steep the loss is: by how much
    that grew says nothing of a rate that moves the weights by more than their own size."""
    stable = stable_lr(rise, lr)
    trained = [leaf for leaf in leaves if leaf.trained]
    size = math.hypot(*(leaf.start for leaf in trained))
    if not blind or not size:
        return stable
    count = sum(leaf.numel for leaf in trained)
    short = float(f"{cutoffs.LARGEST_STEP * size / math.sqrt(count):.1g}")
    return short if short < lr else stable


def growth_of_weights(leaves: Sequence[Leaf]) -> float:
    """From the first step on, those that are trained together; inf where none is known."""
    trained = [leaf for leaf in leaves if leaf.trained]
    start = math.hypot(*(leaf.start for leaf in trained))
    return math.hypot(*(leaf.weight for leaf in trained)) / start if start else math.inf


def undivided(usage: Usage, magnitudes: Magnitudes, steps: Sequence[Step]) -> ask.DivideLoss | None:
    """How to average the passes of each step, where all of them come from one place, go to the same
    parameters, and are of losses that are a mean as it is; None where they are averaged, or nobody
    knows."""
    lengths = set(usage.cycles)
    passes = max(lengths, default=0)
    if lengths != {passes} or passes < 2 or len(usage.cycles) < cutoffs.FEWEST_UPDATES:
        return None
    if usage.handled or usage.discards or not all(one == 1.0 for one in usage.factors):
        return None
    place = backward_of(usage, steps)
    if place is None or not usage.factors or not _go_everywhere(usage, magnitudes):
        return None
    return ask.DivideLoss(place, passes)


def _go_everywhere(usage: Usage, magnitudes: Magnitudes) -> bool:
    """Whether each pass, as far as was measured, gave all that has gradients one: the losses of
    several tasks have heads of their own."""
    own = [leaf.norms for leaf in magnitudes.leaves if leaf.name in usage.held]
    passes = [[norms[step] for norms in own if step < len(norms)] for step in usage.used]
    return all(None not in norms for norms in passes if any(norms))


def averaged_again(usage: Usage) -> bool:
    """Whether the program, too, divides by the number of ranks over which the gradients have been
    averaged: the loss, or the gradients. A number that stands in the source is of the loss, as in
    `0.5 * mse`."""
    passes, factors = set(usage.cycles), set(usage.factors)
    if usage.ranks < 2 or len(passes) != 1 or len(factors) != 1:
        return False
    factor = factors.pop()
    whole = usage.scaled * (1.0 if factor is None else factor / usage.written * passes.pop())
    return math.isclose(whole * usage.ranks, 1.0, rel_tol=1e-5)
