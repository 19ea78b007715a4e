"""Which event put the bad values into a tensor's memory.

Keyed by storage, since saved tensors and views come back as new Python objects on the same
memory. A weak reference to the storage keeps its address from being given to another while it
is a key here, and holds no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.record.finite import unwrapped
from gradscope.record.schema import OpInfo


@dataclass(slots=True)
class Stain:
    """The last event that wrote bad values into a storage. `innocent`: only an inf that the
    program made on purpose (`masked_fill(mask, -inf)`) and nothing born from it."""

    storage: StorageWeakRef
    event: int
    innocent: bool
    uninitialized: bool = False


class Provenance:
    """The storages that hold bad values now. Empty in a healthy run, so asking costs nothing."""

    def __init__(self) -> None:
        self._stains: dict[int, Stain] = {}

    def __bool__(self) -> bool:
        return bool(self._stains)

    def __iter__(self) -> Iterator[Stain]:
        return iter(list(self._stains.values()))

    def of(self, tensor: torch.Tensor) -> Stain | None:
        """The stain of the memory that a tensor lies in; the tensor itself may be a clean part."""
        if not self._stains:
            return None
        key = storage_key(tensor)
        stain = self._stains.get(key) if key is not None else None
        if stain is not None and stain.storage.expired():
            del self._stains[key]  # type: ignore[arg-type]
            return None
        return stain

    def are_read(self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an argument of an op lies in memory that holds bad values."""
        if not self._stains:
            return False
        for value in args:
            if isinstance(value, torch.Tensor):
                if self.of(value) is not None:
                    return True
            elif isinstance(value, list | tuple) and value:
                break
        else:
            if not kwargs:
                return False
        return any(self.of(tensor) is not None for _, tensor in info.tensors(args, kwargs))

    def holds_guilty(self) -> bool:
        """Whether anything alive holds more than an inf that was meant."""
        return any(not stain.innocent for stain in self._stains.values())

    def mark(
        self, tensor: torch.Tensor, event: int, *, innocent: bool, uninitialized: bool = False
    ) -> None:
        key = storage_key(tensor)
        if key is not None:
            reference = StorageWeakRef(storage_of(tensor))
            self._stains[key] = Stain(reference, event, innocent, uninitialized)

    def clear(self, tensor: torch.Tensor) -> None:
        key = storage_key(tensor)
        if key is not None:
            self._stains.pop(key, None)

    def is_filled(self, tensor: torch.Tensor) -> None:
        """Memory that nobody had written is now."""
        stain = self.of(tensor)
        if stain is not None and stain.uninitialized:
            self.clear(tensor)

    def forget_dead(self) -> None:
        for key in [key for key, stain in self._stains.items() if stain.storage.expired()]:
            del self._stains[key]


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    tensor = unwrapped(tensor)  # ops are recorded below the transforms of torch.func
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    local = getattr(tensor, "_local_tensor", None)
    return (tensor if local is None else local).untyped_storage()


def storage_key(tensor: torch.Tensor) -> int | None:
    """The identity of a tensor's memory; None for tensors that have none (CSR, MKLDNN, ...)."""
    try:
        return int(storage_of(tensor)._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def covers_storage(tensor: torch.Tensor) -> bool:
    """Whether writing the tensor overwrites everything that its storage holds."""
    try:
        size = storage_of(tensor).nbytes()
    except (NotImplementedError, RuntimeError):
        return False
    return tensor.numel() * tensor.element_size() >= size
