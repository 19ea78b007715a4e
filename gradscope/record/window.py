"""Ops on a device are judged a window at a time, so that the device is not waited for at each.

Their sums stay on the device and are read together. The window's tensors are held until then,
and an op that overwrites one of them closes the window first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gradscope.record.finite import quick_sum
from gradscope.record.measure import saved_by
from gradscope.record.provenance import storage_key
from gradscope.record.schema import OpInfo
from gradscope.record.spot import Spot

if TYPE_CHECKING:
    from gradscope.record.recorder import Recorder

_OPS = 64
_BYTES = 512 * 2**20  # of results held


class Entry(NamedTuple):
    info: OpInfo
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    seq: int | None
    before: torch.Tensor | None
    spot: Spot


class Window:
    """The ops since the device was last asked."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.synchronisations = 0
        self._entries: list[Entry] = []
        self._sums: list[torch.Tensor] = []
        self._storages: set[int | None] = set()
        self._bytes = 0

    def add(self, entry: Entry) -> None:
        tensors = entry.info.written_tensors(entry.args, entry.kwargs) or _tensors(entry.out)
        floating = [
            t
            for t in tensors
            if (t.is_floating_point() or t.is_complex()) and not t._is_zerotensor()
        ]
        if not floating:
            return
        running = entry.spot.running
        if entry.spot.by_engine and running.saved is None:
            # Only now: inside the formula hooks have unpacked all, and nothing is freed yet.
            running.saved = list(saved_by(running.node, running))
        self._entries.append(entry)
        self._sums.append(_sum(floating))
        self._storages.update(
            storage_key(t) for _, t in entry.info.tensors(entry.args, entry.kwargs)
        )
        for tensor in floating:
            self._storages.add(storage_key(tensor))
            self._bytes += tensor.numel() * tensor.element_size()
        if len(self._entries) >= _OPS or self._bytes > _BYTES:
            self.close()

    def before_write(self, written: list[torch.Tensor]) -> None:
        """An op is about to overwrite these: judge what read or made them first."""
        if self._entries and any(storage_key(tensor) in self._storages for tensor in written):
            self.close()

    def close(self) -> None:
        """Read the sums, and look closer where one is not finite."""
        entries, sums = self._entries, self._sums
        if not entries:
            return
        self._entries, self._sums, self._storages, self._bytes = [], [], set(), 0
        self.synchronisations += 1
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            self._judge(entries, sums)

    def _judge(self, entries: list[Entry], sums: list[torch.Tensor]) -> None:
        totals = torch.stack([total.to(sums[0].device, torch.float32) for total in sums]).tolist()
        for entry, total in zip(entries, totals, strict=True):
            if total - total != 0.0 or self.recorder.touches_stain(
                entry.info, entry.args, entry.kwargs
            ):
                self.recorder.examine(*entry)
        for entry in entries:
            if entry.spot.running.events and entry.spot.running is not self.recorder.mode.running:
                self.recorder.finish_node(entry.spot.running)


def _tensors(out: Any) -> list[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, list | tuple):
        return [tensor for item in out for tensor in _tensors(item)]
    return []


def _sum(tensors: list[torch.Tensor]) -> torch.Tensor:
    """One 0-d tensor that is non-finite if any element of the tensors is; float32."""
    if len(tensors) == 1:
        tensor = tensors[0]
        if tensor.layout is not torch.strided:
            tensor = tensor.values() if tensor.layout is not torch.sparse_coo else tensor._values()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        # In float64 a large healthy sum would not fit the float32 in which totals are read.
        total = quick_sum(tensor)
        return torch.where(total.isfinite(), torch.zeros_like(total), total)
    norms = torch._foreach_norm([t.detach() for t in tensors], float("inf"))
    return torch.stack([norm.float() for norm in norms]).sum()
