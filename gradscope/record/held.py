"""What the variables of the user's live frames hold, and the expressions that reach it."""

import gc
import sys
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from types import FrameType, FunctionType
from typing import Any

import torch

from gradscope.record.sites import OURS, USER, kind_of, kind_of_file, user_frames
from gradscope.record.stand_ins import outward

_MANY = 200  # entries of a container that are looked through
_DEEPEST = 3  # holders between a variable and a module: `trainer.parts["nets"][0]`
_MOST_HELD = 20_000  # values that are looked at for one frame
CALL = torch.nn.Module._call_impl.__code__


def variables(scope: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [pair for pair in list(scope.items()) if not pair[0].startswith("__")]


def parts_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a list, a deque, a dict, a closure or an object holds, by the expressions that
    reach it."""
    if isinstance(value, list | tuple | deque):
        if len(value) < _MANY:
            yield from ((f"{name}[{key}]", one) for key, one in enumerate(value))
    elif isinstance(value, dict):
        if len(value) < _MANY:
            yield from (
                (f"{name}[{key!r}]", one)
                for key, one in list(value.items())
                if type(key) in (str, int)  # the state of an optimizer has parameters for keys
            )
    elif isinstance(value, FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # the cell is empty until its variable is bound
                yield variable, cell.cell_contents
    elif not isinstance(value, type | torch.Tensor):
        attributes = getattr(value, "__dict__", None)
        if type(value).__module__ not in ("builtins", "torch") and isinstance(attributes, dict):
            origin = kind_of_class(type(value))
            if origin == OURS:
                return  # a `watch` holds what the program does, by names that are not the program's
            hidden = "_" if origin != USER else ()  # which nobody would write
            yield from [
                (f"{name}.{key}", one)
                for key, one in attributes.items()
                if isinstance(key, str) and not key.startswith(hidden)
            ]


def link_to(module: torch.nn.Module, key: str) -> str:
    """What leads from a module to the one in it; empty where that has no text of its own."""
    if key.isidentifier():
        return f".{key}"
    return f"[{key}]" if isinstance(module, torch.nn.Sequential | torch.nn.ModuleList) else ""


def kind_of_class(kind: type) -> int:
    """Whose file defines a class: `USER` also where there is none, as in a notebook."""
    if kind.__module__ == "__main__":  # which may be gradscope again, once the program has ended
        return USER
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return USER if file is None else kind_of_file(file)


def held_as(
    frames: Sequence[FrameType], is_it: Callable[[Any], bool], given: Mapping[str, Any]
) -> str | None:
    """The shortest honest name: a variable of a live frame, the innermost first, else
    `self.scale`, `params["w"]`, `weights[0]`, one level deep, else an input that was `given`."""
    for frame in frames:
        for scope in (frame.f_locals, frame.f_globals):
            found = variables(scope)
            for name, value in found:
                if is_it(value):
                    return name
            for holder, value in found:
                for name, part in parts_of(holder, value):
                    if part is not None and is_it(part):
                        return name
    return next((name for name, value in given.items() if is_it(value)), None)


def modules_in(frame: FrameType | None) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that variables of the live frames lead to through lists, dicts and attributes:
    the outermost frame first, and of each what is nearest."""
    for scope in scopes_of(frame):
        for name, value, _ in reached_from(scope):
            if issubclass(type(value), torch.nn.Module) and name != "self":  # and no proxy of one
                yield name, value


def scopes_of(frame: FrameType | None) -> Iterator[Mapping[str, Any]]:
    """The variables of the live frames, the outermost first."""
    for current in reversed(user_frames(frame)):
        yield from (current.f_globals, current.f_locals)


def scopes_in(frame: FrameType) -> Sequence[Mapping[str, Any]]:
    """The variables of one frame, its own first; at the top of a module these are all."""
    scopes = [frame.f_locals, frame.f_globals]
    return scopes[: 1 if scopes[0] is scopes[1] else 2]


def reached_from(scope: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What variables lead to through lists, dicts and attributes, the nearest first and modules as
    a whole: by what expression, and what holds it (None: a variable)."""
    waiting = deque((name, value, 0, None) for name, value in variables(scope))
    seen: set[int] = set()
    for _ in range(_MOST_HELD):
        if not waiting:
            break
        name, value, depth, holder = waiting.popleft()
        yield name, value, holder
        is_module = issubclass(type(value), torch.nn.Module)
        if depth < _DEEPEST and id(value) not in seen and not is_module:
            seen.add(id(value))
            waiting.extend((part, one, depth + 1, value) for part, one in parts_of(name, value))


def alive(kind: type) -> Iterator[Any]:
    """Every object of a type that the program holds. It looks at all that there are."""
    # By type: isinstance would ask each object for its __class__, and some answer with a warning.
    return (thing for thing in gc.get_objects() if issubclass(type(thing), kind))


def any_alive(kind: type) -> bool:
    """Whether there is one: an optimizer that could still take or skip its gradients, say."""
    return any(True for _ in alive(kind))


def has_peers() -> bool:
    """Whether other ranks may take part: collectives may be under way, which have not filled all of
    their memory yet, and a call may wait for others."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized()


def is_within(module: Any, outer: torch.nn.Module) -> bool:
    """Whether it is a part of another one, or that itself."""
    return any(one is module for one in outer.modules())


def holds_any(module: torch.nn.Module, parameters: Container[int]) -> bool:
    """Whether it has one of these, by id."""
    return any(id(one) in parameters for one in module.parameters())


def outermost(frame: FrameType | None) -> tuple[Any, FrameType | None]:
    """The outermost module that runs there, and who of the user's called it."""
    root = caller = None
    for call in outward(frame):
        one = call.f_locals.get("self") if call.f_code is CALL else None
        if one is not None:
            root, caller = one, call.f_back
    return root, next((one for one in outward(caller) if kind_of(one.f_code) == USER), None)
