"""Where a forward uses each element of an input, and whether a gradient is gathered from there.

A straight-through estimator gives a gradient that its author chose: no derivative tells which is
right. But where each element of a result reads one element of the input, which is broadcast, an
element of the gradient is what comes from these results alone, whatever the slope is taken for.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from gradscope.record.probes.derivative import Sample

Run = Callable[[Tensor], list[Any]]  # a backward at the sample's point, of one grad_output


class Uses:
    """A part of an input's elements (`kept`), and the results that read these (`read`)."""

    is_misshapen = True

    def __init__(
        self, sample: Sample, place: int, returned: list[Any], kept: Tensor, read: Tensor
    ) -> None:
        self._sample, self._place, self._returned = sample, place, returned
        self._kept, self._read = kept, read

    @classmethod
    def of(cls, sample: Sample, place: int, returned: list[Any]) -> "Uses | None":
        """None where the forward does not show it: one step, of the elements that are not kept, is
        to change results of these alone, for one way to broadcast the input."""
        point = sample.point[place]
        if len(sample.base.live) != 1 or sample.input(place).is_complex() or not sample.calls.left:
            return None
        if point.numel() == 1:  # every result may read it
            every = (torch.ones_like(one, dtype=torch.bool) for one in (point, sample.base.values))
            return cls(sample, place, returned, *every)
        drawn = torch.rand(point.shape, generator=torch.Generator().manual_seed(1))
        kept = drawn.to(point.device) < 0.5
        kept.view(-1)[:2] = torch.tensor([True, False])
        moved = list(sample.point)
        moved[place] = point + 0.4 * sample.direction()[place] * ~kept
        with suppress(Exception):
            there, here = sample.calls.forward(moved).values, sample.base.values
            changed = (there != here) & ~(there.isnan() & here.isnan())
            out = sample.base.outputs[sample.base.live[0]].shape
            found = [one.reshape(-1) for one in _broadcast(kept, out)]
            found = [one for one in found if not bool((changed & one).any())]
            if bool(changed.any()) and len(found) == 1:
                return cls(sample, place, returned, kept, found[0])
        return None

    def left(self, run: Run, exactly: bool, everywhere: bool) -> int | None:
        """How many elements of the gradient take part in results that do not read them; None where
        it has another shape, or that of another input is no longer what it was."""
        cotangent = self._sample.cotangents[0]
        whole, part = run(cotangent), run(cotangent * self._read)
        for place, before in enumerate(self._returned):
            now = whole[place]
            if place == self._place:
                if not self._sample.fits(place, now, exactly):
                    return None
            elif not _same(now, before):
                return None
        mine, alone = (self._sample.adapted(self._place, one[self._place]) for one in (whole, part))
        if not bool(mine.any()):
            return None
        near = torch.isclose(
            alone, mine * self._kept, rtol=1e-6, atol=1e-9 * float(mine.abs().max())
        )
        return int((~near).sum())


def _broadcast(kept: Tensor, out: torch.Size) -> Iterator[Tensor]:
    """The ways to broadcast a tensor to a shape: each place for its dimensions, in their order."""
    for dims in combinations(range(len(out)), min(kept.ndim, len(out))):
        if kept.ndim <= len(out) and all(
            size in (1, out[dim]) for size, dim in zip(kept.shape, dims, strict=True)
        ):
            sizes = [1] * len(out)
            for size, dim in zip(kept.shape, dims, strict=True):
                sizes[dim] = size
            yield kept.reshape(sizes).expand(out)


def _same(now: Any, before: Any) -> bool:
    if not isinstance(now, Tensor) or not isinstance(before, Tensor):
        return now is before
    return now.shape == before.shape and torch.allclose(now, before, equal_nan=True)
