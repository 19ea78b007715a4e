"""One module that stands several times in a container, so that what reads like several sets of
weights is one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from gradscope.facts import Repeated
from gradscope.record.context import RunContext
from gradscope.record.definitions import variable
from gradscope.record.graph import inputs
from gradscope.record.names import Path, path_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import user_frames
from gradscope.record.sizes.leaves import has_memory
from gradscope.record.tracing import computes_values, unobserved
from gradscope.record.written import repeated_at

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_LISTS = (list, tuple, dict)
_LONGEST = 1024  # entries
_MOST = 16  # modules that are followed
_NEAR = 6  # ops between a result and what is given to the next call
_ALIKE = 4  # ops that each place may do again to what is the same
_LEAST = 2  # passes that show the same

Given = tuple[tuple[Any, int], ...]  # what a call was given, with the versions of tensors


@dataclass(slots=True)
class _Listed:
    """A module that stands `times` times in the container that a path leads to. `outer` is the call
    around its last ones, of which there were `calls`: so many of them `alike`, with what the first
    of them was given, and so many `fed` with the result of the one before."""

    module: nn.Module
    times: int
    name: str
    path: Path  # nothing for a list that a variable holds, in this code
    code: CodeType | None = None
    outer: object = None
    step: int = -1
    calls: int = 0
    alike: int = 0
    fed: int = 0
    first: Given = ()
    result: Any = None  # the node that has made it
    passes: int = 0  # in which all calls were alike
    chained: int = 0  # in which each was given what the one before gave


class Repeats:
    """What the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._listed: dict[int, _Listed] = {}
        self._looked: set[int] = set()

    def after_backward(self, one: BackwardPass) -> None:
        for known in self._listed.values():
            if known.calls > 1 and known.step == self._context.step:
                known.passes += known.alike == known.calls
                known.chained += known.fed == known.calls - 1
            known.outer, known.first, known.result, known.calls = None, (), None, 0
        if one.is_step:
            self._look()
            for frame in user_frames(one.frame):
                for name, value in tuple(frame.f_locals.items()):
                    if type(value) in _LISTS and len(value) <= _LONGEST:
                        for module, times in _several(value):
                            self._follow(_Listed(module, times, name, (), frame.f_code))

    def _follow(self, one: _Listed) -> None:
        key = id(one.module)
        if key not in self._listed and len(self._listed) < _MOST:
            self._listed[key] = one
            self._context.followed[key] = self._note_call

    def _look(self) -> None:
        names = self._context.names
        roots = {id(one.path[0][1]): one.path[0] for one in names.owners.values()}
        for key, (name, root) in roots.items():
            if key in self._looked:
                continue
            self._looked.add(key)
            for module, times, held, path in _repeated(name, root):
                self._follow(_Listed(module, times, held, path))

    def _note_call(
        self, module: nn.Module, outer: object, given: tuple[Any, ...], result: Any
    ) -> None:
        """It has run inside of the call `outer` of another module."""
        if not torch.is_grad_enabled() or not computes_values():
            return
        one, step = self._listed[id(module)], self._context.step
        with unobserved():
            values = tuple((value, _version(value)) for value in given)
            if one.outer is not outer or one.step != step or not one.calls:
                one.outer, one.step, one.first = outer, step, values
                one.calls, one.alike, one.fed = 1, 1, 0
            else:
                one.calls += 1
                one.alike += _are_same(one.first, values)
                one.fed += any(_is_made_of(value, one.result) for value in given)
        one.result = getattr(result, "grad_fn", None)

    def facts(self) -> tuple[Repeated, ...]:
        found = []
        for one in self._listed.values():
            is_chained = one.chained >= _LEAST
            if not (is_chained or one.passes >= _LEAST):
                continue
            place = variable(one.code, one.name) if one.code is not None else None
            place = place or (self._context.names.made(one.path)[0] if one.path else None)
            count = sum(weight.numel() for weight in one.module.parameters())
            found.append(
                Repeated(
                    one.name,
                    type(one.module).__name__,
                    one.times,
                    count,
                    is_chained,
                    any(isinstance(its, _DropoutNd) and its.p for its in one.module.modules()),
                    one.step,
                    repeated_at(place),
                )
            )
        return tuple(found)


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


def _are_same(first: Given, other: Given) -> bool:
    return len(first) == len(other) and all(
        _is_same(*pair) for pair in zip(first, other, strict=True)
    )


def _is_same(first: tuple[Any, int], other: tuple[Any, int]) -> bool:
    """Whether these are one value, or the same view of one, or were made of one by the same few
    ops."""
    (one, before), (two, after) = first, other
    if not (has_memory(one) and has_memory(two)):
        return one is two or (not isinstance(one, torch.Tensor) and _are_equal(one, two))
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


def _are_equal(one: Any, two: Any) -> bool:
    simple = int, float, str, bool, type(None)
    return isinstance(one, simple) and type(one) is type(two) and one == two


def _is_made_of(value: Any, result: Any) -> bool:
    """Whether a node is among those just below a tensor's."""
    nodes = [value.grad_fn] if isinstance(value, torch.Tensor) and result is not None else []
    for _ in range(_NEAR):
        if any(one is result for one in nodes):
            return True
        nodes = [below for one in nodes if one is not None for below in inputs(one)][:64]
    return False
