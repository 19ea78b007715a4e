"""What the user calls a tensor: a parameter's fqn, a variable, an attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from gradscope.record.events.provenance import storage_key
from gradscope.record.sites import user_frames


class Names:
    """Looks names up in the live frames and in the modules that were seen running."""

    def __init__(self) -> None:
        self.roots: dict[int, torch.nn.Module] = {}  # outermost modules, by id
        self.given: Mapping[str, Any] = {}  # inputs, which no frame of the user's holds afterwards
        self._held: dict[int, torch.Tensor] | None = None  # parameters and buffers by memory

    def saw_root(self, module: torch.nn.Module) -> None:
        if id(module) not in self.roots:
            self.roots[id(module)] = module
            self._held = None

    def forget_memory(self) -> None:
        """Parameters may move to other memory between steps; look them up again."""
        self._held = None

    def kin(self, tensor: torch.Tensor) -> str:
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
                for module in self.roots.values()
                for held in (*module.parameters(), *module.buffers())
                if (key := storage_key(held)) is not None
            }
        key = storage_key(tensor)
        return self._held.get(key) if key is not None else None

    def name(self, tensor: torch.Tensor, frame: FrameType | None) -> str | None:
        """The shortest honest name; None where the program has none for it."""
        frames = user_frames(frame)
        held = self.holder(tensor)
        if held is not None:
            fqn = self._fqn(held, frames)
            if fqn is not None:
                return fqn
        for current in frames:
            for scope in (current.f_locals, current.f_globals):
                for name, value in scope.items():
                    if not name.startswith("__") and _is_same(value, tensor):
                        return name
            found = self._attribute(tensor, current)
            if found is not None:
                return found
        return next((name for name, value in self.given.items() if _is_same(value, tensor)), None)

    def _fqn(self, tensor: torch.Tensor, frames: list[FrameType]) -> str | None:
        for variable, module in self._modules(frames):
            for name, held in (*module.named_parameters(), *module.named_buffers()):
                if held is tensor:
                    return f"{variable}.{name}" if variable else name
        return None

    def _modules(self, frames: list[FrameType]) -> Iterator[tuple[str, torch.nn.Module]]:
        """Modules with the variable that holds them, outermost frame first: `model` before the
        `self` of a layer."""
        for frame in reversed(frames):
            for scope in (frame.f_globals, frame.f_locals):
                for name, value in list(scope.items()):
                    if isinstance(value, torch.nn.Module) and name != "self":
                        yield name, value
                    elif isinstance(value, dict | list | tuple) and len(value) < 50:
                        yield from _modules_in(name, value)
        for module in self.roots.values():
            yield "", module

    def _attribute(self, tensor: torch.Tensor, frame: FrameType) -> str | None:
        """`self.scale`, `params["w"]`, `weights[0]`: one level deep."""
        for holder, value in list(frame.f_locals.items()):
            if isinstance(value, list | tuple) and len(value) < 200:
                for position, item in enumerate(value):
                    if item is tensor:
                        return f"{holder}[{position}]"
            elif isinstance(value, dict) and value is not frame.f_globals and len(value) < 200:
                for key, item in list(value.items()):
                    if item is tensor:
                        return f"{holder}[{key!r}]"
            elif type(value).__module__ not in ("builtins", "torch") and hasattr(value, "__dict__"):
                for key, item in list(vars(value).items()):
                    if item is tensor:
                        return f"{holder}.{key}"
        return None


def _is_same(value: Any, tensor: torch.Tensor) -> bool:
    """The tensor itself, or another Python object over the very same elements: what autograd
    saved comes back as one."""
    if value is tensor:
        return True
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return False
    key = storage_key(value)
    return (
        key is not None
        and value.shape == tensor.shape
        and value.dtype == tensor.dtype
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and key == storage_key(tensor)
        and value.storage_offset() == tensor.storage_offset()
        and value.stride() == tensor.stride()
    )


def _modules_in(name: str, held: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    pairs = held.items() if isinstance(held, dict) else enumerate(held)
    for key, value in pairs:
        if isinstance(value, torch.nn.Module):
            yield f"{name}[{key!r}]", value
