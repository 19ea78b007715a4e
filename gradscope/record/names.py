"""What the user calls a tensor: a parameter's fqn, a variable, an attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import unwrapped
from gradscope.record.sites import user_frames
from gradscope.record.sizes.layers import Layers, parts_of


class Names:
    """Looks names up in the live frames and in the modules that were seen running."""

    def __init__(self) -> None:
        self.layers = Layers()
        self.roots: dict[int, torch.nn.Module] = {}  # outermost modules, by id
        self.given: Mapping[str, Any] = {}  # inputs, which no frame of the user's holds afterwards
        self._held: dict[int, torch.Tensor] | None = None  # parameters and buffers by memory

    def saw_root(self, module: torch.nn.Module) -> None:
        if id(module) not in self.roots:
            self.roots[id(module)] = module
            self.layers.saw_root(module)
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
        tensor = unwrapped(tensor)
        held = self.holder(tensor)
        if held is not None:
            if self.layers.name_of(held) is None:
                self.layers.look(frame)
            name = self.layers.name_of(held)
            if name is not None:
                return name
        return held_as(user_frames(frame), lambda value: _is_same(value, tensor), self.given)


def held_as(
    frames: Sequence[FrameType], is_it: Callable[[Any], bool], given: Mapping[str, Any]
) -> str | None:
    """The shortest honest name of a tensor that is no module's: a variable of a live frame, the
    innermost first, else `self.scale`, `params["w"]`, `weights[0]`, one level deep."""
    for frame in frames:
        for scope in (frame.f_locals, frame.f_globals):
            variables = [pair for pair in list(scope.items()) if not pair[0].startswith("__")]
            for name, value in variables:
                if is_it(value):
                    return name
            for holder, value in variables:
                for name, part in parts_of(holder, value):
                    if part is not None and is_it(part):
                        return name
    return next((name for name, value in given.items() if is_it(value)), None)


def _is_same(value: Any, tensor: torch.Tensor) -> bool:
    """The tensor itself, or another Python object over the very same elements: what autograd
    saved comes back as one."""
    if value is tensor:
        return True
    if isinstance(value, torch.Tensor):
        value = unwrapped(value)
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
