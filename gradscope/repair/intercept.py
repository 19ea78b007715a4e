"""Changes calls of one op while a program runs: above autograd, which then sees the new operand.

The functions are replaced where Python looks them up, not by a `TorchFunctionMode`: that one is
off inside of the Python functions of torch (`F.normalize`), where library code calls the op.
What compiled code calls for itself, a name that was bound before the program started and an op
that writes its operand in place stay out of reach.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.programs.audit import aside
from gradscope.record.sites import OURS, USER, is_module_call, kind_of
from gradscope.repair.what_if import WhatIf
from gradscope.source.arguments import ARGUMENTS, KEYWORDS, METHODS, canonical

_SPACES = (torch, torch.Tensor, torch.nn.functional, torch.special, torch.linalg, torch._C._nn)
# The reversed ones (`1 / x`) are Python that calls another op. `x **= 2` writes its operand.
_OPERATORS = {
    "__truediv__": "div", "__div__": "div", "__pow__": "pow", "__mul__": "mul", "__add__": "add",
    "__sub__": "sub", "__matmul__": "mm", "__mod__": "remainder",
}  # fmt: skip
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def install(change: WhatIf) -> None:
    """Replace every Python spelling of the op by one that makes the change at its line."""
    op = canonical(change.op)
    for space in _SPACES:
        for name in dir(space):
            function = getattr(space, name) if op == _OPERATORS.get(name, canonical(name)) else None
            if callable(function) and not isinstance(function, type):
                is_method = space is torch.Tensor
                setattr(space, name, _changed(function, change, op, name, is_method))


def _changed(
    function: Callable[..., Any], change: WhatIf, op: str, name: str, is_method: bool
) -> Callable[..., Any]:
    roles = ARGUMENTS.get(op, ("self", "other"))
    if is_method:
        roles = METHODS.get(op, roles)
    writes_self = name.endswith("_") and not name.endswith("__")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _is_at(sys._getframe(1), change):
            return function(*args, **kwargs)
        named = dict(_named(roles, args, kwargs))
        role = change.argument if change.argument in named else "self"
        operand = named.get(role)
        if not isinstance(operand, torch.Tensor) or (writes_self and role == "self"):
            return function(*args, **kwargs)

        def again(new: Mapping[str, Any]) -> Any:
            return function(
                *(new.get(role, old) for role, old in zip(roles, args, strict=False)),
                *args[len(roles) :],
                **{key: new.get(KEYWORDS.get(key, key), old) for key, old in kwargs.items()},
            )

        with aside():
            Path(change.mark).touch()
        if not change.operand:
            return again({key: _wider(value) for key, value in named.items()})
        names = {**named, "x": operand, "torch": torch}
        out = again({role: eval(change.operand, names)})
        if not change.kept or not isinstance(out, torch.Tensor):
            return out
        with torch.no_grad():
            value = function(*args, **kwargs)
        return torch.where(eval(change.kept, names), out, value)

    return call


def _named(
    roles: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """The arguments by their names in the schema."""
    yield from zip(roles, args, strict=False)
    yield from ((KEYWORDS.get(key, key), value) for key, value in kwargs.items())


def _wider(value: Any) -> Any:
    is_tensor = isinstance(value, torch.Tensor)
    return value.to(_WIDER.get(value.dtype, value.dtype)) if is_tensor else value


def _is_at(frame: FrameType | None, change: WhatIf) -> bool:
    """Whether the user's line asked for this call, and not our own code while it ran there (the
    recorder, or a call that was changed already)."""
    while frame is not None:
        kind = kind_of(frame.f_code)
        if kind == OURS and not is_module_call(frame.f_code):
            return False
        if kind == USER:
            return frame.f_lineno == change.line and _file(frame.f_code) == change.file
        frame = frame.f_back
    return False


def _file(code: CodeType) -> str:
    name = code.co_filename
    return name if name.startswith("<") else os.path.realpath(name)
