"""Which event put the bad values into a tensor's memory.

Keyed by storage, since saved tensors and views come back as new Python objects on the same
memory. A weak reference to the storage keeps its address from being given to another while it
is a key here, and holds no memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.record.finite import local, unwrapped
from gradscope.record.schema import OpInfo

Fact = TypeVar("Fact")


class Memories(Generic[Fact]):
    """What is known of the memory that tensors lie in, one fact each. Empty, it costs nothing to
    be asked."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, Fact]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Fact]:
        return iter([fact for _, fact in self._known.values()])

    def of(self, tensor: torch.Tensor) -> Fact | None:
        """What is known of the memory of a tensor, which may be a part of it."""
        key = storage_key(tensor) if self._known else None
        reference, fact = self._known.get(key, _NOTHING) if key is not None else _NOTHING
        if reference is not None and reference.expired():
            self.clear(tensor)
            return None
        return fact

    def put(self, tensor: torch.Tensor, fact: Fact) -> None:
        key = storage_key(tensor)
        if key is not None:
            self._known[key] = StorageWeakRef(storage_of(tensor)), fact

    def clear(self, tensor: torch.Tensor) -> None:
        key = storage_key(tensor)
        if key is not None:
            self._known.pop(key, None)

    def forget_dead(self) -> None:
        for key in [key for key, (reference, _) in self._known.items() if reference.expired()]:
            del self._known[key]


_NOTHING: tuple[None, None] = (None, None)


@dataclass(slots=True)
class Stain:
    """The last event that wrote bad values into a storage. `intended`: only an inf that the
    program made on purpose (`masked_fill(mask, -inf)`) and nothing born from it."""

    event: int
    intended: bool
    uninitialized: bool = False


class Provenance(Memories[Stain]):
    """The storages that hold bad values now: none in a healthy run. A tensor that lies in one may
    be a clean part of it."""

    def are_read(self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an argument of an op lies in memory that holds bad values."""
        if not self._known:
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

    def holds_unintended(self) -> bool:
        """Whether anything alive holds more than an inf that was meant."""
        return any(not stain.intended for stain in self)

    def mark(
        self, tensor: torch.Tensor, event: int, *, intended: bool, uninitialized: bool = False
    ) -> None:
        self.put(tensor, Stain(event, intended, uninitialized))

    def is_filled(self, tensor: torch.Tensor) -> None:
        """Memory that nobody had written is now."""
        stain = self.of(tensor)
        if stain is not None and stain.uninitialized:
            self.clear(tensor)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    tensor = unwrapped(tensor)  # ops are recorded below the transforms of torch.func
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    held = local(tensor)
    return (held if held.numel() else tensor).untyped_storage()


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
