"""Whether the gradient that a backward returns depends on the one that comes in. A derivative is
linear in it, also one that somebody has chosen: for a grad_output of 0 it is 0."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

import torch
from torch import Tensor

from gradscope.dataclass import dataclass
from gradscope.facts import Relation
from gradscope.record.probes.derivative import Gradients, Sample, Truth
from gradscope.record.probes.relations import Evidence, condition

_DECADES = 2.0  # by which values that are far from the point are larger, or smaller, than usual


@dataclass(frozen=True, slots=True)
class Still:
    """The elements of an input's gradient that are not 0 for a grad_output of 0 (`at`), and those
    of them that are the same for any (`fixed`)."""

    at: Tensor
    fixed: Tensor

    def relation(self, sample: Sample, place: int, got: Tensor) -> Relation | None:
        if not bool(self.at.any()):
            return None
        if not torch.equal(self.at, self.fixed):
            return Relation(("added",))
        if not bool((got * ~self.fixed).any()):
            return Relation(("ignored",))
        return Relation(("partly",), None, condition(self.fixed, sample.alike(place)))


class Incoming:
    """What became of the gradients that a sample of calls has sent in, of which `got` came out."""

    def __init__(self, sample: Sample, got: Gradients, truth: Truth) -> None:
        self._sample, self._got, self._truth = sample, got, truth

    @cached_property
    def _still(self) -> list[Still]:
        """For each input; nothing of a backward that does not take 0."""
        sample, tolerance = self._sample, self._truth.tolerance
        found = [Still(none, none) for none in (torch.zeros_like(g[0]).bool() for g in self._got)]
        with suppress(Exception):
            returned = sample.calls.backward(sample.base, torch.zeros_like(sample.cotangents[0]))
            for place, both in enumerate(self._got):
                alone = sample.adapted(place, returned[place])
                at = alone.isfinite() & (alone.abs() > tolerance * both.abs().amax())
                same = ((both - alone).abs() <= tolerance * alone.abs()).all(0)
                found[place] = Still(at, at & same)
        return found

    def _relation(self, place: int) -> Relation | None:
        return self._still[place].relation(self._sample, place, self._got[place])

    def forgotten(
        self, place: int, evidence: Evidence, relation: Relation
    ) -> tuple[Evidence, Truth, Relation] | None:
        """What shows that a gradient that somebody has chosen is the slope alone, without
        grad_output.

        What replaces the gradient of a forward that passes its input on, or is added to one, does
        so on purpose, and so does that of a loss which a forward takes, and does not read."""
        if not (evidence.is_flat or "ignored" in relation.kinds):
            return None
        found, own, tolerance = self._relation(place), self._got[place], self._truth.tolerance
        if found is None or found.last == "added" or relation.detail == "unrelated":
            return None
        if evidence.is_flat and not _is_read(self._sample, place):
            return None
        fixed = self._still[place].fixed
        shown = Evidence(own, torch.zeros_like(own), own[0], own, fixed, tolerance)
        return shown, Truth([], [], "a grad_output of 0, for which it is 0", tolerance), found

    def constant(self, place: int) -> Relation | None:
        """What is wrong with a gradient that has a part which does not depend on grad_output."""
        return None if self._truth.whole else self._relation(place)


def _is_read(sample: Sample, place: int) -> bool:
    """Whether the result is another one for other values of an input, at which the forward is
    flat: it is a step function, and does not merely hold the input for its backward."""
    for other in _elsewhere(sample.point[place]):
        point = [other if one == place else x for one, x in enumerate(sample.point)]
        with suppress(Exception):
            values = sample.calls.forward(point).values
            if not torch.equal(values.nan_to_num(), sample.base.values.nan_to_num()):
                return True
    return False


def _elsewhere(x: Tensor) -> Iterator[Tensor]:
    """The same values at other places, then others, of either sign."""
    yield x.reshape(-1).flip(0).view_as(x)
    drawn, signs = torch.rand((2, *x.shape), generator=torch.Generator().manual_seed(2)).to(x)
    size = max(1.0, float(x.square().mean().sqrt()))
    far = size * 10 ** (_DECADES * (2 * drawn - 1)) * (signs - 0.5).sign()
    yield from (far, -far)
