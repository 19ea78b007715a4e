"""One module that stands several times in a container, so that what reads like several sets of
weights is one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from gradscope.facts import Repeated
from gradscope.record.context import RunContext
from gradscope.record.names import Path, path_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sizes.leaves import has_memory
from gradscope.record.tracing import computes_values, unobserved
from gradscope.record.written import repeated_at

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_LISTS = (list, tuple, dict)
_MOST = 16  # modules that are followed
_ALIKE = 4  # ops that each place may do again to what is the same
_LEAST = 2  # passes that show the same

Given = tuple[tuple[Any, int], ...]  # what a call was given, with the versions of tensors


@dataclass(slots=True)
class _Listed:
    """A module that stands `times` times in the container that a path leads to. `outer` is the call
    around its last ones, of which there were `calls`: so many of them `alike`, with what the first
    of them was given."""

    module: nn.Module
    times: int
    name: str
    path: Path
    outer: object = None
    step: int = -1
    calls: int = 0
    alike: int = 0
    first: Given = ()
    passes: int = 0  # in which all calls were alike


class Repeats:
    """What the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._listed: dict[int, _Listed] = {}
        self._looked: set[int] = set()
        self._known = 0  # parameters, when models were looked at

    def after_backward(self, one: BackwardPass) -> None:
        for known in self._listed.values():
            if known.calls > 1 and known.step == self._context.step:
                known.passes += known.alike == known.calls
            known.outer, known.first, known.calls = None, (), 0
        if one.is_step:
            self._look()

    def _look(self) -> None:
        names = self._context.names
        if len(names.owners) == self._known:
            return
        self._known = len(names.owners)
        roots = {id(one.path[0][1]): one.path[0] for one in names.owners.values()}
        for key, (name, root) in roots.items():
            if key in self._looked:
                continue
            self._looked.add(key)
            for module, times, held, path in _repeated(name, root):
                if id(module) not in self._listed and len(self._listed) < _MOST:
                    self._listed[id(module)] = _Listed(module, times, held, path)
                    self._context.followed[id(module)] = self._note_call

    def _note_call(self, module: nn.Module, outer: object, given: tuple[Any, ...]) -> None:
        """It has run inside of the call `outer` of another module."""
        if not torch.is_grad_enabled() or not computes_values():
            return
        one, step = self._listed[id(module)], self._context.step
        with unobserved():
            values = tuple((value, _version(value)) for value in given)
            if one.outer is not outer or one.step != step or not one.calls:
                one.outer, one.step, one.first = outer, step, values
                one.calls = one.alike = 1
            else:
                one.calls += 1
                is_same = len(one.first) == len(values) and all(map(_is_same, one.first, values))
                one.alike += is_same

    def facts(self) -> tuple[Repeated, ...]:
        return tuple(
            Repeated(
                one.name,
                type(one.module).__name__,
                one.times,
                sum(weight.numel() for weight in one.module.parameters()),
                any(isinstance(its, _DropoutNd) and its.p for its in one.module.modules()),
                one.step,
                repeated_at(self._context.names.made(one.path)[0]),
            )
            for one in self._listed.values()
            if one.passes >= _LEAST
        )


def _repeated(name: str, root: nn.Module) -> Iterator[tuple[nn.Module, int, str, Path]]:
    """The modules with parameters that stand several times in one of the containers inside of
    `root`: with the container's name, and its path."""
    for prefix, module in root.named_modules():
        path, own = path_of(root, name, prefix), ".".join(filter(None, (name, prefix)))
        lists: list[tuple[str, Path, Any]] = []
        if isinstance(module, _CONTAINERS):
            lists.append((own, path, module._modules))
        for key, value in vars(module).items():
            if not key.startswith("_") and type(value) in _LISTS:
                lists.append((f"{own}.{key}", (*path, (key, module)), value))
        for held, way, value in lists:
            yield from ((one, times, held, way) for one, times in _several(value))


def _several(held: Any) -> Iterator[tuple[nn.Module, int]]:
    """The modules with parameters that a container holds several times."""
    values = held.values() if isinstance(held, dict) else held
    modules = [one for one in values if isinstance(one, nn.Module)]
    counts = Counter(map(id, modules))
    for one in {id(one): one for one in modules}.values():
        if counts[id(one)] > 1 and any(its.requires_grad for its in one.parameters()):
            yield one, counts[id(one)]


def _version(value: Any) -> int:
    return value._version if has_memory(value) and not value.is_inference() else -1


def _is_same(first: tuple[Any, int], other: tuple[Any, int]) -> bool:
    """Whether these are one value, or the same view of one, or were made of one by the same few
    ops."""
    (one, before), (two, after) = first, other
    if not (has_memory(one) and has_memory(two)):
        is_simple = isinstance(one, int | float | str) and type(one) is type(two)
        return one is two or (is_simple and one == two)
    if before < 0 or one.shape != two.shape or one.dtype != two.dtype:
        return False
    if one.data_ptr() == two.data_ptr():
        return before == after and one.stride() == two.stride()
    is_known = one.grad_fn is not None and two.grad_fn is not None
    return is_known and _are_made_alike(one.grad_fn, two.grad_fn, _ALIKE) and one.equal(two)


def _are_made_alike(one: Any, two: Any, depth: int) -> bool:
    """Whether these are one node, or do the same, within so many ops, to what is one."""
    if one is two:
        return True
    if not depth or None in (one, two) or type(one) is not type(two):
        return False
    pairs = zip(one.next_functions, two.next_functions, strict=False)
    return all(a[1] == b[1] and _are_made_alike(a[0], b[0], depth - 1) for a, b in pairs)
