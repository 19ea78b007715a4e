"""The user's modules, and what a parameter is called."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import torch

from gradscope.record.definitions import definition
from gradscope.record.sites import LIBRARY, kind_of, user_frames

_MANY = 200  # entries of a container that are looked through
_DEEPEST = 3  # holders between a variable and a module: `trainer.parts["nets"][0]`
_MOST_HELD = 20_000  # values that are looked at for one frame


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
        self._roots: list[tuple[str, torch.nn.Module]] = []  # by the user's variables
        self._unnamed: list[type] = []  # the classes of those that no variable leads to
        self._running: dict[int, torch.nn.Module] = {}  # that no other module called
        self._kept: list[torch.Tensor] = []  # so that no other leaf gets the id of one

    def look(self, frame: FrameType | None) -> None:
        """Learn the modules that variables of the live frames lead to, the outermost frame first,
        and those that have run: by a name without a variable, where no frame leads to them."""
        for name, root in self._roots:
            if any(id(one) not in self.owners for one in root.parameters()):
                self._learn_parts(name, root)  # a layer was replaced, or added
        held = [pair for pair in modules_in(frame) if id(pair[1]) not in self.modules]
        # The whole model before the lists and variables that hold parts of it.
        for name, module in sorted(held, key=lambda pair: -_size(pair[1])):
            self._learn(name, module)
        for module in self._running.values():
            unnamed = sum(kind is type(module) for kind in self._unnamed)
            if id(module) not in self.modules:
                name = f"{type(module).__name__} {unnamed + 1}" if self._unnamed else ""
                self._unnamed.append(type(module))
                self._learn(name, module)

    def saw_root(self, module: torch.nn.Module) -> None:
        self._running.setdefault(id(module), module)

    def name_of(self, held: torch.Tensor) -> str | None:
        """What a parameter or a buffer is called from the user's variable on."""
        owner = self.owners.get(id(held))
        if owner is not None:
            return owner.name
        for name, root in self._roots:
            for inside, one in (*root.named_parameters(), *root.named_buffers()):
                if one is held:
                    return f"{name}.{inside}" if name else inside
        return None

    def owner_of(self, leaf: torch.Tensor) -> str:
        """The module that holds a parameter; nothing for a leaf of no module."""
        owner = self.owners.get(id(leaf))
        return self.modules.get(id(owner.path[-1][1]), "") if owner is not None else ""

    def _learn(self, name: str, root: torch.nn.Module) -> None:
        if id(root) in self.modules:
            return
        self._roots.append((name, root))
        self._learn_parts(name, root)

    def _learn_parts(self, name: str, root: torch.nn.Module) -> None:
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


def in_some_module(leaves: set[int]) -> set[int]:
    """Those leaves (by id) that are a parameter of any module there is, wherever it hangs. Asked
    where no variable leads to the module, since it goes through all objects."""
    modules = (one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module))
    held = (id(leaf) for one in modules for leaf in vars(one).get("_parameters", {}).values())
    return leaves.intersection(held)


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


def modules_in(frame: FrameType | None) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that variables of the live frames lead to, the outermost frame first."""
    for current in reversed(user_frames(frame)):
        for scope in (current.f_globals, current.f_locals):
            yield from _held(scope)


def _held(scope: dict[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that variables lead to through lists, dicts and attributes, nearest first."""
    waiting = deque(
        (name, value, 0)
        for name, value in list(scope.items())
        if not name.startswith("__") and not (name == "self" and _is_module(value))
    )
    seen: set[int] = set()
    for _ in range(_MOST_HELD):
        if not waiting:
            break
        name, value, depth = waiting.popleft()
        if _is_module(value):
            yield name, value
        elif depth < _DEEPEST and id(value) not in seen:
            seen.add(id(value))
            waiting.extend((part, one, depth + 1) for part, one in parts_of(name, value))


def parts_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a list, a dict, a closure or an object of the program's holds, by the expressions that
    reach it."""
    if isinstance(value, list | tuple):
        if len(value) < _MANY:
            yield from ((f"{name}[{key}]", one) for key, one in enumerate(value))
    elif isinstance(value, dict):
        if len(value) < _MANY:
            yield from ((f"{name}[{key!r}]", one) for key, one in list(value.items()))
    elif isinstance(value, FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # the cell is empty until its variable is bound
                yield variable, cell.cell_contents
    elif not isinstance(value, type | torch.Tensor | torch.nn.Module):
        attributes = getattr(value, "__dict__", None)
        if type(value).__module__ not in ("builtins", "torch") and isinstance(attributes, dict):
            yield from ((f"{name}.{key}", one) for key, one in list(attributes.items()))


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
