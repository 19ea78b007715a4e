"""BatchNorm whose running statistics are those of the last batch: other frameworks call momentum
what torch calls 1 - momentum."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradscope.facts import HastyStatistics
from gradscope.record.names import Names
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.followers import keeps_statistics
from gradscope.record.stand_ins import around
from gradscope.record.written import momentum_at

_MOST = 0.5  # of a batch in the statistics, in the words of torch
_FEWEST = 3  # passes


@dataclass(slots=True)
class _Norm:
    """One that is trained so. `fresh`: its statistics were taken again since, in another way."""

    module: Any
    passes: int = 0
    fresh: bool = False
    runs: int = 0  # steps at which it runs in eval mode
    last: int = -1  # the last of these


class Hasty:
    """Told of each BatchNorm that is made, and of its runs."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, Site] = WeakKeyDictionary()
        self._norms: dict[int, _Norm] = {}

    def install(self, stack: ExitStack, thread: int) -> None:
        around(stack, thread, _BatchNorm, "__init__", after=self._note_made)

    def _note_made(self, frame: FrameType, _: None, one: Any, *more: Any, **named: Any) -> None:
        if _is_hasty(one):
            self._made[one] = note_site(frame)[0]

    def note_run(self, one: Any, step: int) -> None:
        known = self._norms.get(id(one))
        learns = one.training and torch.is_grad_enabled() and _is_hasty(one)
        if known is None:
            if not learns or not keeps_statistics(one):
                return
            known = self._norms[id(one)] = _Norm(one)
        if one.training:
            known.fresh = not learns
            known.passes += learns
        elif not known.fresh and known.last != step and step:
            known.runs, known.last = known.runs + 1, step

    def facts(self, names: Names) -> Iterator[HastyStatistics]:
        """Those of each model that runs, together."""
        for model in names.running.values():
            own = {id(one) for one in model.modules()}
            known = [one for key, one in self._norms.items() if key in own and one.runs]
            norms = [one for one in known if _is_hasty(one.module) and one.passes >= _FEWEST]
            places = dict.fromkeys(filter(None, map(self._place, norms)))
            if places:
                momentum = norms[0].module.momentum
                yield HastyStatistics(
                    names.called(model),
                    type(norms[0].module).__name__,
                    len(norms),
                    momentum,
                    max(one.runs for one in norms),
                    max(one.last for one in norms),
                    tuple(places),
                )

    def _place(self, norm: _Norm) -> Any:
        """Where its momentum is written."""
        made = self._made.get(norm.module, ())
        return momentum_at(made, norm.module.momentum) or place_of(made)


def _is_hasty(one: Any) -> bool:
    return type(one.momentum) is float and _MOST < one.momentum < 1
