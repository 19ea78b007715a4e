"""Memory that a collective of torch.distributed fills with what other ranks sent.

A collective returns before the values are there, and no op is seen when they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.record.events.provenance import Provenance, storage_key, storage_of
from gradscope.record.journal import Note
from gradscope.record.oprun import OpRun, flatten


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

    def note(self, op: OpRun) -> None:
        """A collective was called."""
        # Those of `c10d` take what they fill as their first argument, the functional ones make it.
        filled = flatten(op.args[0]) if op.info.fills_first else flatten(op.out)
        given = [tensor for _, tensor in op.inputs()]
        sources: list[int] = []
        for tensor in given:
            stain, earlier = self.provenance.of(tensor), self.of(tensor)
            sources += [stain.event] if stain is not None else earlier.sources if earlier else ()
        for tensor in filled:
            key = storage_key(tensor)
            if key is None:
                continue
            earlier = self.of(tensor)
            if earlier is not None and not op.info.fills_first:
                continue  # waiting for what an earlier op receives
            note = Note(op.info, op.spot.user, op.spot.inner, op.spot.module)
            reference = StorageWeakRef(storage_of(tensor))
            self._arrivals[key] = Arrival(reference, note, tuple(dict.fromkeys(sources)))

    def of(self, tensor: torch.Tensor) -> Arrival | None:
        key = storage_key(tensor) if self._arrivals else None
        found = self._arrivals.get(key) if key is not None else None
        return found if found is not None and not found.storage.expired() else None

    def by(self, op: OpRun, tensor: torch.Tensor, written: list[torch.Tensor]) -> Arrival | None:
        """How values that no op made came to an op: by a collective, or inside of one, which copies
        from memory of its own into that of the program."""
        found = self.of(tensor)
        if found is not None:
            return found
        fills = (self.of(one) for one in written)
        return next((one for one in fills if one and one.note.user == op.spot.user), None)

    def forget_dead(self) -> None:
        for key in [key for key, one in self._arrivals.items() if one.storage.expired()]:
            del self._arrivals[key]
