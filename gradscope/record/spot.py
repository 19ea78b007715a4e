"""Where an op runs: all that is needed to judge it, also later than it ran."""

from __future__ import annotations

from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils import checkpoint

from gradscope.record.modules import ModuleFrame
from gradscope.record.schema import OpInfo
from gradscope.record.sites import ENGINE, OURS, USER, Site, kind_of

_CHECKPOINT = vars(checkpoint)


class NodeOps:
    """The ops that ran inside the autograd node that is running now.

    Their arguments are held until the node is done, since only the later ops of a node tell which
    of the tensors was its grad_output. Outputs are not held: autograd takes over a gradient
    without a copy only when nobody else holds it.
    """

    __slots__ = ("events", "made", "node", "ops", "saved", "saved_keys", "unpacked")

    def __init__(self, node: Any = None) -> None:
        self.node = node
        self.ops: list[tuple[OpInfo, tuple[Any, ...], dict[str, Any]]] = []
        self.made: set[int] = set()
        self.events: list[Any] = []
        self.saved: list[tuple[str, Any]] | None = None  # read early where ops are judged late
        self.saved_keys: set[int | None] = set()
        self.unpacked: list[Any] = []  # what saved-tensor hooks gave back to this node

    def nbytes(self) -> int:
        """The size of the tensors that are held."""
        return sum(
            value.numel() * value.element_size()
            for _, args, _ in self.ops
            for value in args
            if type(value) is torch.Tensor
        )


class Spot(NamedTuple):
    """The surroundings of one op. `again`: inside a checkpoint's recomputation. `by_user`: the
    user's own line called the op, with nothing of a library between."""

    user: Site
    inner: Site
    by_engine: bool
    by_user: bool
    again: bool
    running: NodeOps
    module: ModuleFrame | None
    optimizing: bool
    step: int


def asked_by_user(frame: FrameType | None) -> bool:
    while frame is not None and kind_of(frame.f_code) == OURS:
        frame = frame.f_back
    return frame is not None and kind_of(frame.f_code) == USER


def runs_forward_again(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals is _CHECKPOINT:
            return True
        if kind_of(frame.f_code) == ENGINE:
            return False
        frame = frame.f_back
    return False
