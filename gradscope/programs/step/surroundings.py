"""Where the calls of a step stand: the frames and modules that run, the places in them, and what
their variables hold, as JSON has it."""

from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.programs.step.values import Unkept, written
from gradscope.record.names import assigned_name
from gradscope.record.sites import (
    LIBRARY,
    USER,
    Site,
    file_in_torch,
    is_entry,
    is_module_call,
    kind_of,
    positions,
)

CODE, MODULE = "code", "module"
_DEEPEST = 64  # frames of a call
_NEAREST = 6  # of the user's, whose variables are kept
_MANY = 64  # entries of a container that are kept
_DEEP = 2  # holders between a variable and a tensor
_PLUMBING = ("nn/modules/module.py", "torch/overrides.py", "_jit_internal.py", "_contextlib.py")

Json = Any


class Scopes:
    """`held` gives the number of a tensor, None of one that is not known; `leaf` makes it known."""

    def __init__(
        self, held: Callable[[torch.Tensor], int | None], leaf: Callable[[torch.Tensor], int]
    ) -> None:
        self.codes: list[Json] = []
        self.modules: list[Json] = []
        self._held, self._leaf = held, leaf
        self._numbers: dict[tuple[tuple[str, int, int], ...], int] = {}  # of chains
        self._code_ids: dict[int, tuple[CodeType, int]] = {}
        self._places: list[dict[tuple[Any, ...], int]] = []
        self._module_ids: dict[int, tuple[torch.nn.Module, int]] = {}
        self._global_ids: dict[int, tuple[Any, int]] = {}
        self._known: dict[str, dict[str, Json]] = {}  # what variables held at the last call

    @property
    def chains(self) -> list[Json]:
        """What calls were made in, the outermost first: [kind, code or module, place in there]."""
        return [list(map(list, chain)) for chain in self._numbers]

    def at(self, frame: FrameType | None) -> tuple[int, Json]:
        """The chain in which a frame makes a call, and what variables hold that held something else
        before."""
        frames = list(_chain(frame))[:_DEEPEST][::-1]
        chain = tuple(
            (kind, self._code(held.f_code), self._place(held.f_code, held.f_lasti))
            if kind == CODE
            else (kind, self._module(_module_of(held)), 0)
            for kind, held in frames
        )
        number = self._numbers.setdefault(chain, len(self._numbers))
        return number, self._names([held for kind, held in frames if kind == CODE][::-1])

    def site(self, site: Site) -> Json:
        """The chain of what was called before, which has frames alone."""
        return [[CODE, self._code(code), self._place(code, lasti)] for code, lasti in site[::-1]]

    def _code(self, code: CodeType) -> int:
        known = self._code_ids.get(id(code))
        if known is None:
            known = self._code_ids[id(code)] = (code, len(self.codes))
            self._places.append({})
            self.codes.append({
                "file": code.co_filename,
                "user": kind_of(code) == USER,
                "name": code.co_name,
                "qualname": code.co_qualname,
                "line": code.co_firstlineno,
                "places": [],
            })  # fmt: skip
        return known[1]

    def _place(self, code: CodeType, lasti: int) -> int:
        number, listed = self._code(code), positions(code)
        where = listed[lasti // 2] if 0 <= lasti // 2 < len(listed) else (None,) * 4
        name = assigned_name(((code, lasti),)) if kind_of(code) == USER else None
        place = (*where, name if name is not None and name.isidentifier() else None)
        known = self._places[number]
        if place not in known:
            known[place] = len(known)
            self.codes[number]["places"].append(list(place))
        return known[place]

    # What variables hold

    def _names(self, frames: list[FrameType]) -> Json:
        found: dict[str, Json] = {}
        for frame in [one for one in frames if kind_of(one.f_code) == USER][:_NEAREST]:
            code = self._code(frame.f_code)
            if frame.f_locals is not frame.f_globals:
                self._compare(f"n{code}", frame.f_locals, found)
            known = self._global_ids.setdefault(
                id(frame.f_globals), (frame.f_globals, len(self._global_ids))
            )
            self.codes[code]["globals"] = known[1]
            self._compare(f"g{known[1]}", frame.f_globals, found)
        return found

    def _compare(self, scope: str, now: Mapping[str, Any], found: dict[str, Json]) -> None:
        known, new = self._known.setdefault(scope, {}), {}
        for name, value in list(now.items()):
            if name.startswith("__") or not name.isidentifier():
                continue
            held = self._holding(value, _DEEP)
            if known.get(name) != held:
                known[name] = new[name] = held
        for name in [one for one, held in known.items() if one not in now and held is not None]:
            known[name] = new[name] = None
        if new:
            found[scope] = new

    def _holding(self, value: Any, depth: int) -> Json:
        """A tensor or a module, or what holds one; None of anything else."""
        kind = type(value)
        if kind in _PLAIN:
            return None
        if issubclass(kind, torch.Tensor):
            return self._tensor(value)
        if issubclass(kind, torch.nn.Module):
            return {"m": self._module(value)}
        if not depth:
            return None
        if kind in (list, tuple):
            if len(value) > _MANY:
                return None
            parts = [self._holding(one, depth - 1) for one in value]
            return {"list": parts} if any(one is not None for one in parts) else None
        if kind is dict:
            pairs = value.items() if len(value) <= _MANY else ()
            entries = [
                [key, held]
                for key, one in list(pairs)
                if type(key) in (str, int) and (held := self._holding(one, depth - 1)) is not None
            ]
            return {"dict": entries} if entries else None
        if kind.__module__.partition(".")[0] in ("builtins", "torch", "numpy"):
            return None
        return self._attributes(getattr(value, "__dict__", None), depth - 1)

    def _attributes(self, attributes: Any, depth: int) -> Json:
        if not isinstance(attributes, dict) or len(attributes) > _MANY:
            return None
        parts = {
            name: held
            for name, one in list(attributes.items())
            if isinstance(name, str)
            and not name.startswith("__")
            and (held := self._holding(one, depth)) is not None
        }
        return {"object": parts} if parts else None

    def _tensor(self, tensor: torch.Tensor) -> Json:
        known = self._held(tensor)
        if known is None and tensor.is_leaf and tensor.requires_grad:
            try:
                known = self._leaf(tensor)
            except Unkept:
                return None
        return None if known is None else {"t": known}

    # Modules

    def _module(self, module: torch.nn.Module) -> int:
        known = self._module_ids.get(id(module))
        if known is None:
            known = self._module_ids[id(module)] = (module, len(self.modules))
            self.modules.append({})
        return known[1]

    def finish(self, number: Callable[[torch.Tensor], int]) -> None:
        """Record what the modules hold, once the step is over."""
        done = 0
        while done < len(self.modules):  # those inside come to it
            module, at = list(self._module_ids.values())[done]
            self.modules[at] = self._content(module, number)
            done += 1

    def _content(self, module: torch.nn.Module, number: Callable[[torch.Tensor], int]) -> Json:
        kind = type(module)

        def numbered(held: Mapping[str, torch.Tensor | None]) -> Json:
            found: dict[str, Json] = {}
            for name, one in held.items():
                try:
                    found[name] = None if one is None else number(one)
                except Unkept:
                    continue
            return found

        parts = vars(module)
        plain = {
            name: written(one, number, str)
            for name, one in parts.items()
            if type(one) in _PLAIN and not name.startswith("_") and name != "training"
        }
        rest = {
            name: held
            for name, one in list(parts.items())
            if not name.startswith("_") and (held := self._holding(one, _DEEP)) is not None
        }
        return {
            "class": kind.__name__,
            "qualname": kind.__qualname__,
            "torch": kind.__module__ if kind.__module__.startswith("torch.nn.modules.") else "",
            "training": module.training,
            "forward": self._made_by(getattr(kind, "forward", None)),
            "init": self._made_by(vars(kind).get("__init__")),
            "plain": plain,
            "parameters": numbered(module._parameters),
            "buffers": numbered(module._buffers),
            "modules": {
                name: None if one is None else self._module(one)
                for name, one in module._modules.items()
            },
            "rest": rest,
        }

    def _made_by(self, function: Any) -> int | None:
        code = getattr(function, "__code__", None)
        return self._code(code) if isinstance(code, CodeType) and not file_in_torch(code) else None


_PLAIN = frozenset({bool, int, float, str, type(None)})


def _chain(frame: FrameType | None) -> Iterator[tuple[str, FrameType]]:
    """What runs, the innermost first: the user's frames, those that call a module, and those of
    installed packages in between."""
    while frame is not None and not is_entry(frame.f_code):
        code = frame.f_code
        kind = kind_of(code)
        if is_module_call(code):
            yield MODULE, frame
        elif kind == USER or (kind == LIBRARY and not code.co_filename.endswith(_PLUMBING)):
            yield CODE, frame
        frame = frame.f_back


def _module_of(frame: FrameType) -> torch.nn.Module:
    module: torch.nn.Module = frame.f_locals["self"]
    return module
