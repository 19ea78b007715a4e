"""A model whose gradients have all become exactly 0 in the course of training: it stands still at a
loss that is not 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradscope.facts import (
    Absence,
    Leaf,
    Magnitudes,
    Trace,
)
from gradscope.ops.traits import Trait, has

LASTS = 3  # passes in a row without a gradient; batches differ, and one may be flat by chance


def has_died(leaf: Leaf) -> bool:
    """Whether it had a gradient, and has none but zeros by now."""
    return any(leaf.known) and len(leaf.known) > LASTS and not any(leaf.known[-LASTS:])


@dataclass(frozen=True, slots=True)
class Death:
    """No trained parameter gets a gradient from the step `since` on; the first one that is lost is
    lost at `where`."""

    where: Absence
    leaves: tuple[Leaf, ...]
    since: int


def died(trace: Trace, magnitudes: Magnitudes) -> Death | None:
    """None where some trained parameter still learns, or where there is nothing left to learn."""
    trained = [leaf for leaf in magnitudes.leaves if leaf.trained and leaf.known]
    loss = trace.steps[-1].loss if trace.steps else None
    if not trained or not loss or not math.isfinite(loss):
        return None  # a loss of 0 has no slope: training is done
    if not all(has_died(leaf) for leaf in trained):
        return None
    # What a model that has come to rest is flat in. A clamp or a choice is often meant to be.
    kinds = Trait.RECTIFIES | Trait.SATURATES
    flat = [one for one in magnitudes.died if has(one.node or "", kinds)]
    return Death(flat[0], tuple(trained), max(map(_since, trained))) if flat else None


def _since(leaf: Leaf) -> int:
    """The first step of those at the end without a gradient."""
    alive = [step for step, norm in enumerate(leaf.norms) if norm]
    return alive[-1] + 1
