"""Writes that autograd does not see, into what it has saved.

An in-place write raises a tensor's version, and backward refuses a saved tensor whose version has
risen. `.data` hands out the same memory under a version of its own: a write through it goes
unnoticed, and backward computes with values that the forward pass never had.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gradscope.facts import NotChecked, Overwrite
from gradscope.record.context import RunContext
from gradscope.record.definitions import kept_at
from gradscope.record.events.measure import saved_by
from gradscope.record.events.provenance import Memories, storage_key
from gradscope.record.graph import node_name
from gradscope.record.journal import to_call
from gradscope.record.oprun import NodeOps
from gradscope.record.refusals.notes import Noted
from gradscope.record.sites import resolve

_MOST = 256  # memories that are watched at a time
_LEFT_OUT = NotChecked(
    "whether some writes overwrite what backward needs",
    f"at most {_MOST} tensors are followed between two backward passes",
)


class _Layout(NamedTuple):
    """Which elements of its storage a tensor has."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Layout:
        return cls(int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride())

    @property
    def stop(self) -> int:
        pairs = zip(self.shape, self.strides, strict=True)
        return self.start + sum((size - 1) * stride for size, stride in pairs) + 1

    def meets(self, other: _Layout) -> bool:
        """Columns of one matrix lie between each other and have no element in common."""
        start = min(self.start, other.start)
        if 0 in self.shape + other.shape or max(self.start, other.start) >= min(
            self.stop, other.stop
        ):
            return False
        marks = torch.zeros(max(self.stop, other.stop) - start, dtype=torch.bool)
        marks.as_strided(self.shape, self.strides, self.start - start).fill_(True)
        return bool(marks.as_strided(other.shape, other.strides, other.start - start).any())


class Overwrites:
    """The writes since the last backward pass, by memory: in most programs there is not `any`."""

    def __init__(self, context: RunContext) -> None:
        self.found: list[Overwrite] = []
        self.any = False
        self.not_checked: dict[NotChecked, None] = {}
        self._context = context
        self._writes: Memories[tuple[Noted, _Layout]] = Memories()
        # What a custom Function keeps on its ctx, with the last write into each until then.
        self._kept = WeakKeyDictionary[Any, dict[int | None, tuple[Noted, _Layout] | None]]()
        self._keys: set[int | None] = set()  # the memories of these

    def note(self, noted: Noted, tensor: torch.Tensor) -> None:
        """A write outside of backward, by an op that the user's own code calls. What requires grad
        is written under autograd's eyes, but for what a ctx keeps."""
        is_plain = type(tensor) is torch.Tensor and _is_floating(tensor)
        if not is_plain or noted.inner:
            return
        if tensor.requires_grad and storage_key(tensor) not in self._keys:
            return
        if len(self._writes) >= _MOST:
            self.not_checked[_LEFT_OUT] = None
            return
        self._writes.put(tensor, (noted, _Layout.of(tensor)))
        self.any = True

    def note_kept(self, node: Any) -> None:
        """A custom Function has run, of which this is the node, and the ctx. Autograd counts the
        versions of what it is given to save, and of nothing else that is kept there."""
        held = (one for one in vars(node).values() if type(one) is torch.Tensor)
        kept = {storage_key(one): self._writes.of(one) for one in held}
        if kept and len(self._kept) < _MOST:
            self._kept[node] = kept
            self._keys |= kept.keys()

    def check(self, running: NodeOps, args: tuple[Any, ...]) -> None:
        """An op of a backward node reads `args`."""
        for tensor in args:
            if type(tensor) is not torch.Tensor:
                continue
            write, layout = self._writes.of(tensor) or (None, None)
            if write is None or layout is None:
                continue
            is_custom = hasattr(running.node, "_forward_cls")  # no other one takes weak references
            key, kept = storage_key(tensor), self._kept.get(running.node, {}) if is_custom else {}
            if key in kept:
                before = kept[key]
                if (before is None or before[0] is not write) and layout.meets(_Layout.of(tensor)):
                    self._writes.clear(tensor)
                    self._report(running.node, write, tensor)
                continue
            # Nodes with a lower number were there before.
            if running.node._sequence_nr() >= write.seq:
                continue
            if layout.meets(_Layout.of(tensor)) and _has_saved(running, storage_key(tensor)):
                self._writes.clear(tensor)
                self._report(running.node, write)

    def forget(self) -> None:
        """The backward pass is over."""
        if self.any:
            self._writes, self.any = Memories(), False
        self._kept.clear()
        self._keys.clear()

    def _report(self, node: Any, write: Noted, held: torch.Tensor | None = None) -> None:
        """`held`: what a ctx keeps as an attribute."""
        seq, step = node._sequence_nr(), self._context.step
        note = self._context.journal.call_of(seq)
        if note is not None and (held is not None or note.custom is None):
            name, place = node_name(node), resolve(*write.site[0])
            attributes = vars(node) if held is not None else {}
            kept = next((key for key, one in attributes.items() if one is held), "")
            at = kept_at(node._forward_cls, kept) if kept else None
            call = to_call(note, seq, name)
            self.found.append(Overwrite(step, call, name, write.op, place, kept, at))


def _is_floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout is torch.strided and not tensor.is_meta


def _has_saved(running: NodeOps, key: int | None) -> bool:
    """Whether it is the node's own saved tensor, and not the gradient that came in."""
    saved = (value for _, value in saved_by(running.node, running))
    return any(isinstance(value, torch.Tensor) and storage_key(value) == key for value in saved)
