"""BatchNorm whose running statistics are those of the last batch: other frameworks call momentum
what torch calls 1 - momentum."""

import math
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradscope.facts import HastyStatistics
from gradscope.record.held import given_outermost
from gradscope.record.schedule import is_chosen
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.followers import keeps_statistics
from gradscope.record.sizes.leaves import has_memory
from gradscope.record.stand_ins import is_elsewhere, stand_in, without_us
from gradscope.record.tracing import unobserved
from gradscope.record.written import momentum_at, momentum_set

_MOST = 0.5  # of a batch in the statistics, in the words of torch
_APART = (
    0.02  # how far the means of two batches are, in standard deviations: 5,000 values have that
)
_ALIKE = 1e-5  # relative, of sums of the same values in another order
_EARLY = 3  # passes in which the weights move a lot
_FEWEST = 3  # passes


@dataclass(slots=True)
class _Norm:
    """One that is trained so. `fresh`: its statistics were taken again since, in another way."""

    module: Any
    user: Site  # where it runs
    passes: int = 0
    fresh: bool = False
    runs: int = 0  # steps at which it runs in eval mode
    last: int = -1  # the last of these
    before: Any = None  # its mean, and the sum of the data, of a pass before
    moved: list[torch.Tensor] = field(default_factory=list)
    sums: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)


class Hasty:
    """Told of each BatchNorm that is made, and of its runs."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, Site] = WeakKeyDictionary()
        self._norms: dict[int, _Norm] = {}

    def install(self, stack: ExitStack, thread: int) -> None:
        original: Any = _BatchNorm.__init__

        def __init__(one: Any, *args: Any, **kwargs: Any) -> None:
            with without_us:
                original(one, *args, **kwargs)
            if not is_elsewhere(thread) and _is_hasty(one):
                self._made[one] = note_site(sys._getframe(1))[0]

        stand_in(stack, _BatchNorm, "__init__", __init__)

    def note_run(self, one: Any, frame: FrameType, step: int) -> None:
        known = self._norms.get(id(one))
        learns = one.training and torch.is_grad_enabled() and _is_hasty(one)
        if known is None:
            if not learns or not keeps_statistics(one):
                return
            known = self._norms[id(one)] = _Norm(one, note_site(frame)[0])
        if one.training:
            known.fresh = not learns
            if learns:
                _sample(known, frame)
        elif not known.fresh and known.last != step and step:
            known.runs, known.last = known.runs + 1, step

    def facts(
        self, models: Iterable[nn.Module], names: Mapping[int, str]
    ) -> Iterable[HastyStatistics]:
        """Those of each model that runs, together."""
        for model in models:
            own = {id(one) for one in model.modules()}
            norms = [one for key, one in self._norms.items() if key in own and _is_told(one)]
            if norms and any(map(_is_apart, norms)):
                momentum = norms[0].module.momentum
                places = dict.fromkeys(filter(None, map(self._place, norms)))
                yield HastyStatistics(
                    names.get(id(model)) or type(model).__name__,
                    type(norms[0].module).__name__,
                    len(norms),
                    momentum,
                    max(one.runs for one in norms),
                    max(one.last for one in norms),
                    tuple(places),
                )

    def _place(self, norm: _Norm) -> Any:
        """Where its momentum is written."""
        made = self._made.get(norm.module)
        if made is not None:
            return momentum_at(made, norm.module.momentum) or place_of(made)
        return momentum_set(norm.user, norm.module.momentum)


def _is_hasty(one: Any) -> bool:
    return type(one.momentum) is float and _MOST < one.momentum < 1


def _is_told(norm: _Norm) -> bool:
    return _is_hasty(norm.module) and norm.runs > 0 and norm.passes >= _FEWEST


def _sample(norm: _Norm, frame: FrameType) -> None:
    """Before a pass gives it other statistics: how far those are from the ones before, and whether
    it is for other data."""
    before, norm.before = norm.before, None
    if before is not None or is_chosen(norm.passes):
        data = given_outermost(frame)
        with unobserved():
            mean, spread = norm.module.running_mean, norm.module.running_var
            total = data.sum(dtype=torch.float64) if data is not None and has_memory(data) else None
            if before is not None and norm.passes > _EARLY:
                apart = (mean - before[0]).square() / (spread + norm.module.eps)
                norm.moved.append(apart.mean().sqrt())
                if total is not None and before[1] is not None:
                    norm.sums.append((before[1], total))
            if is_chosen(norm.passes):
                norm.before = mean.clone(), total
    norm.passes += 1


def _is_apart(norm: _Norm) -> bool:
    """Whether batches differ: who trains on all data at once may take the statistics of that."""
    sums = [tuple(map(float, pair)) for pair in norm.sums]
    if sums and all(math.isclose(*pair, rel_tol=_ALIKE) for pair in sums):
        return False
    return not norm.moved or median(map(float, norm.moved)) > _APART
