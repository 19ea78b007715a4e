"""What the user calls a tensor or a module: a parameter's path, a variable, an attribute."""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Location
from gradscope.record.definitions import definition, variable
from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import is_distributed, unwrapped
from gradscope.record.graph import inputs
from gradscope.record.held import alive, has_peers, held_as, modules_in, parts_of, variables
from gradscope.record.sites import (
    LIBRARY,
    ModuleFrame,
    Site,
    file_in_torch,
    instructions,
    kind_of,
    module_path,
    user_frames,
)

_FEW = 4  # ops from a parameter to what is kept of it in its place

Path = tuple[tuple[str, torch.nn.Module], ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """Where a parameter hangs: `path` are the modules from the root to the owner with the name
    of each in its parent, the root's being the user's variable."""

    name: str
    path: Path

    @property
    def is_packaged(self) -> bool:
        """Whether the layer is a part of a module whose code is an installed package's, so that
        nothing the user wrote decides what becomes of it."""
        if len(self.path) < 2:
            return False
        code = getattr(type(self.path[-2][1]).forward, "__code__", None)
        return code is not None and kind_of(code) == LIBRARY and not file_in_torch(code)

    @property
    def is_listed(self) -> bool:
        """Whether the layer is one of several in a ModuleList or ModuleDict."""
        holders = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList)
        return any(isinstance(module, holders) for _, module in self.path[:-1])

    def ends_stack(self, missing: Set[int]) -> bool:
        """Whether it is a part of the last of several modules in a list, and that part of the one
        before is none of the `missing` parameters, by id: a last layer makes for a next one, as
        the others do, what nobody reads."""
        for at, (_, module) in enumerate(self.path[:-2]):
            if not isinstance(module, torch.nn.ModuleList) or len(module) < 2:
                continue
            if self.path[at + 1][1] is module[-1]:
                parts = dict(module[-2].named_modules())
                before = parts.get(".".join(name for name, _ in self.path[at + 2 :]))
                held = list(before.parameters()) if before is not None else []
                return bool(held) and all(id(one) not in missing for one in held)
        return False


class Names:
    """Learns the modules that run and those that the user's frames hold, and their parameters by
    identity; looks other names up in the live frames."""

    def __init__(self) -> None:
        self.owners: dict[int, Owner] = {}
        self.parameters: dict[int, torch.nn.Parameter] = {}
        self.unregistered: dict[int, Owner] = {}  # what a module holds and `parameters()` skips
        self.modules: dict[int, str] = {}  # by id
        self._variables: dict[int, tuple[CodeType, str]] = {}  # that hold modules, by their ids
        self.given: Mapping[str, Any] = {}  # inputs, which no frame of the user's holds afterwards
        self._roots: list[tuple[str, torch.nn.Module]] = []  # by the user's variables
        self._unnamed: list[type] = []  # the classes of those that no variable leads to
        self.running: dict[int, torch.nn.Module] = {}  # that no other module called
        self.on_root: Callable[[torch.nn.Module], None] = lambda module: None  # told of a new one
        self.on_run: Callable[[], None] = lambda: None  # told of each, whenever it runs
        self._callers: list[torch.nn.Module] = []  # whose methods have called those
        self._kept: list[torch.Tensor] = []  # so that no other leaf gets the id of one
        self._held: dict[int, torch.Tensor] | None = None  # parameters and buffers by memory

    def saw_root(self, module: torch.nn.Module) -> None:
        """A module runs that no other one called."""
        if id(module) not in self.running:
            self.running[id(module)] = module
            self._held = None
            self.on_root(module)
            # A framework may hold the model, and call another of its methods than its forward.
            holders = [one.f_locals.get("self") for one in user_frames(sys._getframe(1))]
            self._callers += (
                one
                for one in reversed(holders)
                if issubclass(type(one), torch.nn.Module) and id(one) not in self.running
            )
        self.on_run()

    def forget_memory(self) -> None:
        """Parameters may move to other memory between steps; look them up again."""
        self._held = None

    # Modules

    def look(self, frame: FrameType | None) -> None:
        """Learn the modules that variables of the live frames lead to, the outermost frame first,
        and those that have run: by a name without a variable, where no frame leads to them."""
        for name, root in self._roots:
            if any(id(one) not in self.owners for one in root.parameters()):
                self._learn_parts(name, root)  # a layer was replaced, or added
        for current in user_frames(frame):
            for name, value in variables(current.f_locals):
                if issubclass(type(value), torch.nn.Module):
                    self._variables.setdefault(id(value), (current.f_code, name))
        held = [pair for pair in modules_in(frame) if id(pair[1]) not in self.modules]
        # The whole model before the lists and variables that hold parts of it.
        for name, module in sorted(held, key=lambda pair: -sum(1 for _ in pair[1].modules())):
            self._learn(name, module)
        for module in (*self._callers, *self.running.values()):
            unnamed = sum(kind is type(module) for kind in self._unnamed)
            if id(module) not in self.modules:
                name = f"{type(module).__name__} {unnamed + 1}" if self._unnamed else ""
                self._unnamed.append(type(module))
                self._learn(name, module)

    def _learn(self, name: str, root: torch.nn.Module) -> None:
        if id(root) not in self.modules:
            self._roots.append((name, root))
            self._learn_parts(name, root)

    def _learn_parts(self, name: str, root: torch.nn.Module) -> None:
        inside = [
            (prefix, module, path_of(root, name, prefix)) for prefix, module in root.named_modules()
        ]
        for prefix, module, path in inside:
            self.modules.setdefault(id(module), _dotted(name, prefix))
            for attribute, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in self.owners:
                    self.owners[id(parameter)] = Owner(_dotted(name, prefix, attribute), path)
                    self.parameters[id(parameter)] = parameter
        for prefix, module, path in inside:
            for attribute, part, leaf in _in_plain_attributes(module):
                owner = Owner(_dotted(name, prefix, part), (*path, (attribute, module)))
                if id(leaf) not in self.owners and definition(owner.path)[0] is not None:
                    self._kept.append(leaf)
                    self.owners[id(leaf)] = self.unregistered[id(leaf)] = owner

    def sharded(self, frame: FrameType | None) -> list[torch.nn.Parameter]:
        """The parameters of which a part is here (DTensor, FSDP1). While FSDP has gathered them,
        other ones stand in their places."""
        if not has_peers():
            return []  # many programs import DTensor, and to look takes long
        self.look(frame)
        return [
            one
            for key, one in self.parameters.items()
            if is_distributed(one) or is_flat(self.gathered(key, one))
        ]

    def gathered(self, key: int, parameter: torch.Tensor) -> torch.Tensor:
        """What the forward pass reads in the place of a parameter (by id): itself, where FSDP has
        not sharded it."""
        owner = self.owners.get(key)
        for _, module in owner.path if owner is not None else ():
            for part, whole in _gathered_by(module):
                if part is parameter:
                    return whole
        return parameter

    def module(self, frame: ModuleFrame | None) -> str | None:
        """A running module under the name by which its parameters go."""
        known = self.modules.get(id(frame.module)) if frame is not None else None
        return known or module_path(frame)

    def called(self, module: torch.nn.Module) -> str:
        """The same for one that may have no name: its class stands for it then."""
        return self.modules.get(id(module)) or type(module).__name__

    def made(self, path: Path) -> tuple[Location | None, Location | None]:
        """Where the last of these modules is assigned, and what ought to call it if that is known:
        in the module that holds it, else as a variable."""
        place, caller = definition(path)
        if place is None and (known := self._variables.get(id(path[-1][1]))) is not None:
            place = variable(*known)
        return place, caller

    def owner_of(self, leaf: torch.Tensor) -> str:
        """The module that holds a parameter; nothing for a leaf of no module."""
        owner = self.owners.get(id(leaf))
        return self.modules.get(id(owner.path[-1][1]), "") if owner is not None else ""

    def whole(self, parameter: int, among: set[int], *, learning: bool) -> Owner | None:
        """The largest module around a parameter of which every parameter is among these (by id), or
        with `learning` every one that requires a gradient."""
        owner = self.owners.get(parameter) if parameter in self.parameters else None
        for depth, (_, module) in enumerate(owner.path if owner is not None else ()):
            inside = [one for one in module.parameters() if one.requires_grad or not learning]
            if owner is not None and inside and all(id(one) in among for one in inside):
                return Owner(owner.name, owner.path[: depth + 1])
        return owner

    # Tensors

    def held_as(self, tensor: torch.Tensor) -> str:
        """What holds it: "parameter", "buffer", "leaf" or "". A view of a parameter is the
        parameter's: layers multiply by `weight.t()`."""
        held = self.holder(tensor)
        if held is not None:
            return "parameter" if isinstance(held, torch.nn.Parameter) else "buffer"
        return "leaf" if tensor.is_leaf and tensor.requires_grad else ""

    def holder(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The parameter or buffer in whose memory the tensor lies."""
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        if isinstance(tensor._base, torch.nn.Parameter):
            return tensor._base
        if self._held is None:
            self._held = {
                key: held
                for module in self.running.values()
                for held in (*module.parameters(), *module.buffers())
                if (key := storage_key(held)) is not None
            }
        key = storage_key(tensor)
        return self._held.get(key) if key is not None else None

    def name(self, tensor: torch.Tensor, frame: FrameType | None) -> str | None:
        """The shortest honest name; None where the program has none for it."""
        tensor = unwrapped(tensor)
        held = self.holder(tensor)
        if held is not None:
            name = self._path_of(held)
            if name is None:
                self.look(frame)
                name = self._path_of(held)
            if name is not None:
                return name
        frames = list(user_frames(frame))
        # A library may have added dimensions of size 1 to what it was given.
        named = (held_as(frames, partial(_is_same, tensor, of), self.given) for of in (True, False))
        return next(filter(None, named), None)

    def name_of_leaf(self, leaf: torch.Tensor, frame: FrameType | None) -> str | None:
        """The same for a tensor that is known itself, and not by its memory."""
        owner = self.owners.get(id(leaf))
        if owner is not None:
            return owner.name
        return held_as(user_frames(frame), lambda value: value is leaf, self.given)

    def _path_of(self, held: torch.Tensor) -> str | None:
        """What a parameter or a buffer is called from the user's variable on."""
        owner = self.owners.get(id(held))
        if owner is not None:
            return owner.name
        for name, root in self._roots:
            for inside, one in (*root.named_parameters(), *root.named_buffers()):
                if one is held:
                    return _dotted(name, inside)
        return None


def in_some_module(leaf: int) -> bool:
    """Whether a leaf (by id) is a parameter of any module there is, wherever it hangs. Asked
    where no variable leads to the module, since it goes through all objects."""
    modules = alive(torch.nn.Module)
    held = (one for module in modules for one in vars(module).get("_parameters", {}).values())
    return any(id(one) == leaf for one in held)


def is_flat(leaf: torch.Tensor) -> bool:
    """Whether FSDP1 keeps the parameters of a module in it, of which the optimizer has views."""
    return getattr(leaf, "_params", None) is not None and hasattr(leaf, "_is_flat_param")


def flat_part(path: Path, leaf: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Which part of a parameter is here that FSDP1 has divided, and the shape of the whole."""
    handles: Iterator[Any] = (vars(module).get("_handle") for _, module in path)
    for handle in handles:
        flat = getattr(handle, "flat_param", None)
        if flat is None or not handle.uses_sharded_strategy:
            continue
        originals = zip(flat._params or (), flat._shapes, strict=False)
        wholes = ((flat, flat._unpadded_unsharded_size), *originals)
        for one, shape in wholes:
            if one is leaf:
                return (handle.rank,), tuple(shape)
    return None


def _gathered_by(module: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The parameters that FSDP has sharded there, each with what it is whole in."""
    held = vars(module)
    flat = getattr(held.get("_handle"), "flat_param", None)  # of FSDP1
    if flat is not None:
        yield from ((one, flat) for one in flat._params or ())
    if "FSDPModule" in {kind.__name__ for kind in type(module).__mro__}:
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        for one in (one for group in groups if group is not None for one in group.fsdp_params):
            yield one.sharded_param, getattr(one, "_unsharded_param", one.sharded_param)


def _in_plain_attributes(module: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The leaves that a module keeps where `parameters()` does not look, in lists, in dicts and
    as tensors that are no parameters: attribute, the expression that reaches it, leaf."""
    for attribute, held in vars(module).items():
        if type(held) is torch.Tensor and held.requires_grad:
            leaf = held if held.is_leaf else _made_of(held)
            if leaf is not None:
                yield attribute, attribute, leaf
        if attribute.startswith("_") or not isinstance(held, list | tuple | dict):
            continue
        for part, one in parts_of(attribute, held):
            if isinstance(one, torch.nn.Parameter) and not is_flat(one):
                yield attribute, part, one
            elif isinstance(one, torch.nn.Module):
                for name, parameter in one.named_parameters():
                    yield attribute, f"{part}.{name}", parameter


def _made_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The parameter that a tensor alone was made of, by a few ops: of `Parameter(x).float()`."""
    node = tensor.grad_fn
    for _ in range(_FEW):
        above = inputs(node) if node else []
        if len(above) != 1:
            break
        (node,) = above
    leaf = getattr(node, "variable", None)
    return leaf if isinstance(leaf, torch.nn.Parameter) else None


def _dotted(*parts: str) -> str:
    return ".".join(filter(None, parts)).replace("_fsdp_wrapped_module.", "")


def path_of(root: torch.nn.Module, name: str, prefix: str) -> Path:
    path = [(name, root)]
    module = root
    for part in filter(None, prefix.split(".")):
        module = module._modules[part]  # type: ignore[assignment]
        path.append((part, module))
    return tuple(path)


def _is_same(tensor: torch.Tensor, of_size_1: bool, value: Any) -> bool:
    """The tensor itself, or another Python object over the very same elements: what autograd
    saved comes back as one. Dimensions `of_size_1` count, or not."""
    if value is tensor:
        return True
    if isinstance(value, torch.Tensor):
        value = unwrapped(value)
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return False

    def dimensions(one: torch.Tensor) -> list[tuple[int, int]]:
        both = zip(one.shape, one.stride(), strict=True)
        return [pair for pair in both if of_size_1 or pair[0] != 1]

    key = storage_key(value)
    return (
        key is not None
        and value.dtype == tensor.dtype
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and key == storage_key(tensor)
        and value.storage_offset() == tensor.storage_offset()
        and dimensions(value) == dimensions(tensor)
    )


def assigned_name(user: Site) -> str | None:
    """The name that the user's line is about to give to the result of its call: `x` or `self.x`
    in `x = torch.tensor(rows)`. None where the result is used further in the same expression."""
    if not user:
        return None
    code, lasti = user[0]
    # A running call is at its instruction or in the cache entries behind it, which are not listed.
    listed = instructions(code)
    place = bisect_right(listed, lasti, key=lambda one: one.offset)
    if not listed[place - 1].opname.startswith(("CALL", "BINARY_OP")):
        return None
    names = []
    for one in listed[place : place + 2]:
        names.append(one.argval[0] if isinstance(one.argval, tuple) else one.argval)
        if one.opname.startswith("STORE_"):
            return ".".join(map(str, names)) if "SUBSCR" not in one.opname else None
        if not one.opname.startswith(("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL")):
            return None
    return None
