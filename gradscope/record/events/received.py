"""Memory that a collective of torch.distributed fills with what other ranks sent.

A collective returns before the values are there, and no op is seen when they arrive. Of objects
it brings the bytes, from which tensors are made without an op.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from gradscope.dataclass import dataclass
from gradscope.record.events.provenance import Memories, Provenance
from gradscope.record.journal import Note
from gradscope.record.oprun import OpRun, flatten
from gradscope.record.stand_ins import stand_in

# Those that add to what is there; the others only write what they fill.
_ADD = frozenset(("allreduce_", "allreduce_coalesced_", "reduce_"))


@dataclass(frozen=True, slots=True)
class Arrival:
    """The collective that fills a memory. `sources` are the events that had put bad values into
    what this rank gave to it."""

    note: Note
    sources: tuple[int, ...]


class Received:
    """The storages that collectives have filled, while they live."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance
        self._arrivals: Memories[Arrival] = Memories()
        self._sent: Memories[tuple[int, ...]] = Memories()  # the events of what holds objects
        self.handed: int | None = None  # the event of what was last sent, and bad by accident
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
            sources += self._sent.of(tensor) or ()
        for tensor in filled:
            if self.of(tensor) is not None and not op.info.fills_first:
                continue  # waiting for what an earlier op receives
            self._arrivals.put(tensor, Arrival(op.note, tuple(dict.fromkeys(sources))))

    def note_handed(self, given: Iterable[tuple[str, torch.Tensor]]) -> None:
        """A collective takes these to other ranks."""
        for _, tensor in given:
            stain = self.provenance.of(tensor)
            if stain is not None and not (stain.intended or stain.uninitialized):
                self.handed = stain.event

    def note_sent(self, sent: object, as_bytes: torch.Tensor) -> None:
        """The bytes of an object hold what its tensors do."""
        held = (one for one in tree_leaves(sent) if isinstance(one, torch.Tensor))
        stains = [stain for one in held if (stain := self.provenance.of(one)) is not None]
        self._sent.put(as_bytes, tuple(dict.fromkeys(stain.event for stain in stains)))

    @contextmanager
    def opening(self, as_bytes: torch.Tensor) -> Iterator[None]:
        """An object is made of the bytes that a collective has brought, and its tensors with it."""
        self.opened = self.of(as_bytes)
        try:
            yield
        finally:
            self.opened = None

    def of(self, tensor: torch.Tensor) -> Arrival | None:
        return self._arrivals.of(tensor)

    def by(self, op: OpRun, tensor: torch.Tensor, written: list[torch.Tensor]) -> Arrival | None:
        """How values that no op made came to an op: by a collective, or inside of one, which copies
        from memory of its own into that of the program."""
        found = self.opened or self.of(tensor)
        if found is not None:
            return found
        fills = (self.of(one) for one in written)
        return next((one for one in fills if one and one.note.user == op.note.user), None)

    def forget_dead(self) -> None:
        self._sent.forget_dead()
        self._arrivals.forget_dead()


def follow_objects(stack: ExitStack, received: Received) -> None:
    """See what `broadcast_object_list` and others like it send and bring, until `stack` ends."""
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
