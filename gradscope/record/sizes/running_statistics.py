"""The running statistics of BatchNorm, where they are not those of the data. In copies of a model
that follow its weights alone (a teacher, a target network, an average over the run) they are those
that it was copied with; with a momentum that other frameworks call 1 - momentum, those of the last
batch."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradscope.facts import HastyStatistics, StaleStatistics
from gradscope.record.held import holds_any, outermost
from gradscope.record.names import Names
from gradscope.record.sites import Site, note_site, place_of, user_frames
from gradscope.record.sizes.leaves import has_memory, samples
from gradscope.record.sizes.sights import modules_of
from gradscope.record.stand_ins import around
from gradscope.record.tracing import computes_values, unobserved
from gradscope.record.written import momentum_at

_FEWEST = 3  # steps at which it has run: before the last one, what it gives may not be used
_HASTY = 0.5  # of a batch in the statistics, in the words of torch


@dataclass(slots=True)
class _Follower:
    """A model that runs without gradients in eval mode, as it was when it first did."""

    module: nn.Module
    norms: list[Any]
    weights: list[list[Any]]
    statistics: list[list[Any]]
    runs_at: Site
    last: int = -1  # the step at which it ran last
    runs: int = 0  # steps at which it did
    written_at: Site = ()
    # What leads to each module where its weights are written, by id.
    there: Mapping[int, str] = field(default_factory=dict)

    def is_stale(self) -> bool:
        """Whether its weights have moved, and no statistics of it."""
        is_same = samples(_statistics(self.norms)) == self.statistics
        return is_same and samples(self.module.parameters()) != self.weights


class Followers:
    """Told of each BatchNorm that runs so, and of what is written outside of optimizers."""

    def __init__(self) -> None:
        self._found: dict[int, _Follower] = {}
        self._by_part: dict[int, _Follower] = {}
        self._by_memory: dict[int, _Follower] = {}

    def note_run(self, part: nn.Module, frame: FrameType, step: int) -> None:
        one = self._by_part.get(id(part))
        if one is None:
            if not (keeps_statistics(part) and computes_values()):
                return
            root, caller = outermost(frame)
            if caller is None:
                return
            one = self._found.get(id(root)) or self._met(root, note_site(caller)[0])
            self._found[id(root)] = self._by_part[id(part)] = one
        if one.last != step:
            one.runs, one.last = one.runs + 1, step

    def _met(self, root: nn.Module, site: Site) -> _Follower:
        norms = [one for one in root.modules() if keeps_statistics(one)]
        with unobserved():
            sampled = samples(root.parameters()), samples(_statistics(norms))
        one = _Follower(root, norms, *sampled, site)
        for weight in filter(has_memory, root.parameters()):
            self._by_memory[weight.data_ptr()] = one
        return one

    def note_write(self, tensor: Any, frame: FrameType) -> None:
        if not self._by_memory or not has_memory(tensor):
            return
        one = self._by_memory.get(tensor.data_ptr())
        if one is not None and not one.written_at:
            one.written_at = note_site(frame)[0]
            for user in user_frames(frame)[:1]:
                one.there = {id(found()): name for name, found in modules_of(user)}

    def facts(self, trained: Collection[int], names: Names) -> Iterator[StaleStatistics]:
        """Of those that nobody trains (`trained`: parameters, by id), beside a model that runs,
        that somebody does, and that has the same parts."""
        learning = [one for one in names.running.values() if holds_any(one, trained)]
        for one in self._found.values():
            if one.runs < _FEWEST or holds_any(one.module, trained):
                continue
            with unobserved():
                source = next((its for its in learning if _has_left(its, one)), None)
                if source is None or not one.is_stale():
                    continue
                untouched = not any(is_touched(norm) for norm in one.norms)
            own, other = names.called(one.module), names.called(source)
            places = place_of(one.written_at), place_of(one.runs_at)
            there = one.there.get(id(one.module), ""), one.there.get(id(source), "")
            yield StaleStatistics(own, other, one.runs, one.last, untouched, *places, *there)


def keeps_statistics(one: Any) -> bool:
    return isinstance(one, _BatchNorm) and has_memory(one.running_mean)


def is_touched(norm: Any) -> bool:
    """Whether its statistics are other than those that every BatchNorm is made with."""
    return bool(norm.running_mean.any() or norm.running_var.ne(1).any())


def _statistics(norms: Iterable[Any]) -> list[torch.Tensor]:
    return [kept for one in norms for kept in (one.running_mean, one.running_var)]


def _has_left(source: nn.Module, follower: _Follower) -> bool:
    """Whether a model has the parameters of another one, and statistics that are no longer its."""
    shapes = [[one.shape for one in model.parameters()] for model in (source, follower.module)]
    if shapes[0] != shapes[1] or source is follower.module:
        return False
    norms = [one for one in source.modules() if keeps_statistics(one)]
    return len(norms) == len(follower.norms) and samples(_statistics(norms)) != follower.statistics


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

    def _note_made(self, frame: FrameType, _: None, one: Any, /, *more: Any, **named: Any) -> None:
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
    return type(one.momentum) is float and _HASTY < one.momentum < 1
