"""Where a running program is, and what was noted of it: shared by all that look at its ops."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from gradscope.record.events.provenance import Provenance
from gradscope.record.events.received import Received
from gradscope.record.graph import node_name
from gradscope.record.journal import Journal, Note
from gradscope.record.names import Names
from gradscope.record.oprun import NodeOps, OpRun, asked_by_user, runs_forward_again
from gradscope.record.running import Askers
from gradscope.record.schema import OpInfo
from gradscope.record.sites import ModuleFrame, called_by_engine, note_site


class RunContext:
    """The recorder and its mode keep it true; whoever looks at an op asks it, and gets nothing
    else of them."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.provenance = Provenance()
        self.received = Received(self.provenance)
        self.names = Names()
        self.step = 0
        self.module: ModuleFrame | None = None  # the innermost one that is running, if
        self.askers = Askers()  # anybody asks
        self.running = NodeOps()  # the ops of the autograd node that is running
        self.history: list[NodeOps] = []  # the nodes of this backward pass, while they are small
        self.seq: int = torch._C._autograd._get_sequence_nr()  # after the last op that was noted
        self.rounded_otherwise: dict[str, None] = {}  # ops that hang on modes, in order
        self.in_optimizer = False
        self.bad_in_step = False  # something bad was made that nobody meant

    def frame(self) -> FrameType:
        return sys._getframe(1)

    def call_of_node(self, node: Any) -> Note | None:
        """The forward call that made an autograd node."""
        seq = node._sequence_nr()
        if node_name(node) == "CopySlices":
            # Made after the in-place op on a view had returned; that op's own node is one below.
            return self.journal.call_of(seq - 1) or self.journal.call_of(seq)
        return self.journal.call_of(seq)

    def op_run(
        self,
        frame: FrameType | None,
        info: OpInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        seq: int | None,
        before: torch.Tensor | None,
    ) -> OpRun:
        """The op that `frame` called, with its surroundings."""
        in_node = self.running.node is not None
        return OpRun(
            Note(info, *note_site(frame), self.module),
            args,
            kwargs,
            out,
            seq,
            before,
            by_engine=in_node and called_by_engine(frame),
            by_user=asked_by_user(frame),
            again=in_node and runs_forward_again(frame),
            running=self.running,
            optimizing=self.in_optimizer,
            step=self.step,
        )
