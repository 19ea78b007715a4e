"""Ops on a device are judged a window at a time, so that the device is not waited for at each.

Their sums stay on the device and are read together. The window's tensors are held until then,
and an op that overwrites one of them closes the window first.
"""

import torch

from gradscope.record.context import RunContext
from gradscope.record.events.examine import Examiner
from gradscope.record.events.measure import saved_by
from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import quick_sum
from gradscope.record.oprun import OpRun, flatten
from gradscope.record.tracing import unobserved

_OPS = 64
_BYTES = 512 * 2**20  # of results held


class Window:
    """The ops since the device was last asked."""

    def __init__(self, context: RunContext, examiner: Examiner) -> None:
        self.context = context
        self.examiner = examiner
        self._ops: list[OpRun] = []
        self._sums: list[torch.Tensor] = []
        self._storages: set[int | None] = set()
        self._bytes = 0

    @property
    def is_open(self) -> bool:
        return bool(self._ops)

    def add(self, op: OpRun) -> None:
        tensors = op.written() or flatten(op.out)
        floating = [
            t
            for t in tensors
            if (t.is_floating_point() or t.is_complex()) and not t._is_zerotensor()
        ]
        if not floating:
            return
        running = op.running
        if op.by_engine and running.saved is None:
            # Only now: inside the formula hooks have unpacked all, and nothing is freed yet.
            running.saved = list(saved_by(running.node, running))
        self._ops.append(op)
        self._sums.append(_sum(floating))
        self._storages.update(storage_key(tensor) for _, tensor in op.inputs())
        for tensor in floating:
            self._storages.add(storage_key(tensor))
            self._bytes += tensor.numel() * tensor.element_size()
        if len(self._ops) >= _OPS or self._bytes > _BYTES:
            self.close()

    def before_write(self, written: list[torch.Tensor]) -> None:
        """An op is about to overwrite these: judge what read or made them first."""
        if any(storage_key(tensor) in self._storages for tensor in written):
            self.close()

    def close(self) -> None:
        """Read the sums, and look closer where one is not finite."""
        ops, sums = self._ops, self._sums
        if not ops:
            return
        self._ops, self._sums, self._storages, self._bytes = [], [], set(), 0
        with unobserved():
            device = sums[0].device
            totals = torch.stack([total.to(device, torch.float32) for total in sums]).tolist()
            for op, total in zip(ops, totals, strict=True):
                stained = self.context.provenance.are_read(op.info, op.args, op.kwargs)
                if stained or total - total != 0.0:
                    self.examiner.examine(op)
            for op in ops:
                if op.running.events and op.running is not self.context.running:
                    self.examiner.finish_node(op.running)


def _sum(tensors: list[torch.Tensor]) -> torch.Tensor:
    """One 0-d tensor that is non-finite if any element of the tensors is; float32."""
    if len(tensors) == 1:
        tensor = tensors[0]
        if tensor.layout is not torch.strided:
            tensor = tensor.values() if tensor.layout is not torch.sparse_coo else tensor._values()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        total = quick_sum(tensor)
        # A large healthy sum in float64 would not fit the float32 in which totals are read.
        return total - total if total.dtype is torch.float64 else total
    norms = torch._foreach_norm([t.detach() for t in tensors], float("inf"))
    return torch.stack([norm.float() for norm in norms]).sum()
