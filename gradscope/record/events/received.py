"""Memory that a collective of torch.distributed fills with what other ranks sent.

A collective returns before the values are there, and no op is seen when they arrive. Of objects
it brings the bytes, from which tensors are made without an op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from gradscope.record.events.provenance import Provenance, storage_key, storage_of
from gradscope.record.journal import Note
from gradscope.record.oprun import OpRun, flatten
from gradscope.record.stand_ins import stand_in

# Those that add to what is there; the others only write what they fill.
_ADD = frozenset(("allreduce_", "allreduce_coalesced_", "reduce_"))


@dataclass(frozen=True, slots=True)
class Arrival:
    """The collective that fills a storage. `sources` are the events that had put bad values into
    what this rank gave to it."""

    storage: StorageWeakRef
    note: Note
    sources: tuple[int, ...]


class Received:
    """The storages that collectives have filled, while they live."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance
        self._arrivals: dict[int, Arrival] = {}
        self._sent: dict[int, tuple[StorageWeakRef, tuple[int, ...]]] = {}
        self.opened: Arrival | None = None  # of whose bytes tensors are made now

    def note(self, op: OpRun) -> None:
        """A collective was called."""
        # Those of `c10d` take what they fill as their first argument, the functional ones make it.
        filled = flatten(op.args[0]) if op.info.fills_first else flatten(op.out)
        if op.info.name not in _ADD:
            for tensor in filled:
                self.provenance.is_filled(tensor)
        given = [tensor for _, tensor in op.inputs()]
        sources: list[int] = []
        for tensor in given:
            stain, earlier = self.provenance.of(tensor), self.of(tensor)
            sources += [stain.event] if stain is not None else earlier.sources if earlier else ()
            sources += self._sent_in(tensor)
        for tensor in filled:
            key = storage_key(tensor)
            if key is None:
                continue
            earlier = self.of(tensor)
            if earlier is not None and not op.info.fills_first:
                continue  # waiting for what an earlier op receives
            reference = StorageWeakRef(storage_of(tensor))
            self._arrivals[key] = Arrival(reference, op.note, tuple(dict.fromkeys(sources)))

    def note_sent(self, sent: object, as_bytes: torch.Tensor) -> None:
        """The bytes of an object hold what its tensors do."""
        held = (one for one in tree_leaves(sent) if isinstance(one, torch.Tensor))
        stains = [stain for one in held if (stain := self.provenance.of(one)) is not None]
        key = storage_key(as_bytes)
        if key is not None:
            sources = tuple(dict.fromkeys(stain.event for stain in stains))
            self._sent[key] = (StorageWeakRef(storage_of(as_bytes)), sources)

    @contextmanager
    def opening(self, as_bytes: torch.Tensor) -> Iterator[None]:
        """An object is made of the bytes that a collective has brought, and its tensors with it."""
        self.opened = self.of(as_bytes)
        try:
            yield
        finally:
            self.opened = None

    def of(self, tensor: torch.Tensor) -> Arrival | None:
        key = storage_key(tensor) if self._arrivals else None
        found = self._arrivals.get(key) if key is not None else None
        return found if found is not None and not found.storage.expired() else None

    def by(self, op: OpRun, tensor: torch.Tensor, written: list[torch.Tensor]) -> Arrival | None:
        """How values that no op made came to an op: by a collective, or inside of one, which copies
        from memory of its own into that of the program."""
        found = self.opened or self.of(tensor)
        if found is not None:
            return found
        fills = (self.of(one) for one in written)
        return next((one for one in fills if one and one.note.user == op.note.user), None)

    def _sent_in(self, tensor: torch.Tensor) -> tuple[int, ...]:
        key = storage_key(tensor) if self._sent else None
        reference, sources = self._sent.get(key, (None, ())) if key is not None else (None, ())
        return sources if reference is not None and not reference.expired() else ()

    def forget_dead(self) -> None:
        if not (self._sent or self._arrivals):
            return
        for key in [key for key, (one, _) in self._sent.items() if one.expired()]:
            del self._sent[key]
        for key in [key for key, one in self._arrivals.items() if one.storage.expired()]:
            del self._arrivals[key]


def follow_objects(stack: ExitStack, received: Received) -> None:
    """See what `broadcast_object_list` and its kin send and bring, until `stack` ends."""
    if not torch.distributed.is_available():
        return
    objects: Any = torch.distributed.distributed_c10d
    to_bytes, from_bytes = objects._object_to_tensor, objects._tensor_to_object

    def sent(obj: Any, *args: Any, **kwargs: Any) -> Any:
        made = to_bytes(obj, *args, **kwargs)
        received.note_sent(obj, made[0])
        return made

    def came(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        with received.opening(tensor):
            return from_bytes(tensor, *args, **kwargs)

    stand_in(stack, objects, "_object_to_tensor", sent)
    stand_in(stack, objects, "_tensor_to_object", came)
