"""The user's modules, and what a parameter is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gradscope.record.sites import LIBRARY, kind_of, user_frames
from gradscope.record.sizes.definitions import definition

_MANY = 50  # entries of a container that are looked through


@dataclass(frozen=True, slots=True)
class Owner:
    """Where a parameter hangs: `path` are the modules from the root to the owner with the name
    of each in its parent, the root's being the user's variable."""

    name: str
    path: tuple[tuple[str, torch.nn.Module], ...]


class Layers:
    """The modules that the user's frames hold, and their parameters by identity."""

    def __init__(self) -> None:
        self.owners: dict[int, Owner] = {}
        self.parameters: dict[int, torch.nn.Parameter] = {}
        self.unregistered: dict[int, Owner] = {}  # what a module holds and `parameters()` skips
        self.modules: dict[int, str] = {}  # by id
        self._kept: list[torch.Tensor] = []  # so that no other leaf gets the id of one

    def look(self, frame: FrameType | None) -> None:
        """Learn the modules that variables of the live frames hold, the outermost frame first."""
        held = [
            pair
            for current in reversed(user_frames(frame))
            for scope in (current.f_globals, current.f_locals)
            for pair in _held(scope)
            if id(pair[1]) not in self.modules
        ]
        # The whole model before the lists and variables that hold parts of it.
        for name, module in sorted(held, key=lambda pair: -_size(pair[1])):
            self._learn(name, module)

    def _learn(self, name: str, root: torch.nn.Module) -> None:
        if id(root) in self.modules:
            return
        for prefix, module in root.named_modules():
            self.modules.setdefault(id(module), f"{name}.{prefix}" if prefix else name)
            path = _path(root, name, prefix)
            for attribute, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in self.owners:
                    dotted = ".".join(part for part in (name, prefix, attribute) if part)
                    self.owners[id(parameter)] = Owner(dotted, path)
                    self.parameters[id(parameter)] = parameter
        for prefix, module in root.named_modules():
            path = _path(root, name, prefix)
            for attribute, inside, leaf in _in_plain_attributes(module):
                dotted = ".".join(part for part in (name, prefix, attribute) if part)
                owner = Owner(f"{dotted}{inside}", (*path, (attribute, module)))
                if id(leaf) not in self.owners and definition(owner.path)[0] is not None:
                    self._kept.append(leaf)
                    self.owners[id(leaf)] = self.unregistered[id(leaf)] = owner

    def unused(self, parameter: torch.Tensor, gone: set[int]) -> Owner | None:
        """The largest module around a parameter of which every parameter is in `gone` (by id)."""
        owner = self.owners.get(id(parameter))
        if owner is None:
            return None
        for depth, (_, module) in enumerate(owner.path):
            inside = [one for one in module.parameters() if one.requires_grad]
            if inside and all(id(one) in gone for one in inside):
                return Owner(owner.name, owner.path[: depth + 1])
        return owner


def packaged(owner: Owner) -> bool:
    """Whether the layer is a part of a module whose code is an installed package's, so that
    nothing the user wrote decides what becomes of it."""
    if len(owner.path) < 2:
        return False
    holder = type(owner.path[-2][1])
    code = getattr(holder.forward, "__code__", None)
    in_torch = holder.__module__.partition(".")[0] == "torch"
    return not in_torch and code is not None and kind_of(code) == LIBRARY


def siblings(owner: Owner) -> bool:
    """Whether the layer is one of several in a ModuleList or ModuleDict."""
    holders = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList)
    return any(isinstance(module, holders) for _, module in owner.path[:-1])


def _held(scope: dict[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, value in list(scope.items()):
        if isinstance(value, torch.nn.Module):
            if name != "self":
                yield name, value
        elif isinstance(value, list | tuple) and 0 < len(value) < _MANY:
            yield from _modules(name, enumerate(value))
        elif isinstance(value, dict) and 0 < len(value) < _MANY and not name.startswith("__"):
            yield from _modules(name, value.items())
        elif type(value).__module__ not in ("builtins", "torch") and hasattr(value, "__dict__"):
            if not isinstance(value, type):
                held = getattr(value, "__dict__", {})
                yield from (
                    (f"{name}.{key}", one) for key, one in list(held.items()) if _is_module(one)
                )


def _in_plain_attributes(module: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The leaves that a module keeps where `parameters()` does not look, in lists, in dicts and
    as tensors that are no parameters: attribute, what follows it (`[0].weight`), leaf."""
    for attribute, held in vars(module).items():
        if type(held) is torch.Tensor and held.requires_grad and held.is_leaf:
            yield attribute, "", held
        if attribute.startswith("_") or not isinstance(held, list | tuple | dict):
            continue
        pairs = held.items() if isinstance(held, dict) else enumerate(held)
        for key, one in list(pairs)[:_MANY]:
            if isinstance(one, torch.nn.Parameter):
                yield attribute, f"[{key!r}]", one
            elif isinstance(one, torch.nn.Module):
                for name, parameter in one.named_parameters():
                    yield attribute, f"[{key!r}].{name}", parameter


def _modules(name: str, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, torch.nn.Module]]:
    return ((f"{name}[{key!r}]", value) for key, value in list(pairs) if _is_module(value))


def _size(module: torch.nn.Module) -> int:
    return sum(1 for _ in module.modules())


def _is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def _path(root: torch.nn.Module, name: str, prefix: str) -> tuple[tuple[str, torch.nn.Module], ...]:
    path = [(name, root)]
    module = root
    for part in filter(None, prefix.split(".")):
        module = module._modules[part]  # type: ignore[assignment]
        path.append((part, module))
    return tuple(path)
