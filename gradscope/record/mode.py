"""The dispatch mode: sees every aten op, keeps the healthy path as short as it can be.

What is done at every op: run it, see whether an autograd node was made (then note the call
site), and look at one sum of the result. Everything else happens only near a bad value.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from gradscope.record.context import RunContext
from gradscope.record.finite import quick_total
from gradscope.record.graph import SeenNodes
from gradscope.record.journal import Note, numbers_taken
from gradscope.record.margins import Margins
from gradscope.record.modes import Unseen
from gradscope.record.oprun import NodeOps, OpRun, flatten
from gradscope.record.overwrites import Overwrites
from gradscope.record.raised import RaisedOps
from gradscope.record.schema import OpInfo, read_schema
from gradscope.record.sites import note_site
from gradscope.record.stand_ins import hide_from_dynamo
from gradscope.record.tracing import is_profiling, record_for_profiler
from gradscope.record.window import Window

_current_node = torch._C._current_autograd_node
_modes_left = torch._C._len_torch_dispatch_stack
_sequence_nr = torch._C._autograd._get_sequence_nr
_FULL = frozenset({torch.float32, torch.float64})
_HALF = frozenset({torch.float16, torch.bfloat16})
_OTHER = frozenset(
    {torch.complex64, torch.complex128, torch.complex32}
    | {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
)
_HISTORY = 32 * 2**20  # bytes held of one backward pass, to tell afterwards who sent a zero


class Looker(Protocol):
    """Who looks at the ops that the mode sees."""

    overwrites: Overwrites
    margins: Margins | None
    note_operands: Callable[[OpInfo, Any, Any], None]
    note_result: Callable[[Any, Any, Any], None]

    def examine(self, op: OpRun) -> None: ...
    def measure_margins(self, op: OpRun) -> None: ...
    def note_write(self, info: OpInfo, tensor: Any, frame: Any) -> None: ...
    def note_read(self, tensor: Any, value: float | None, frame: Any) -> None: ...
    def check_overwrites(self, running: NodeOps, args: tuple[Any, ...]) -> None: ...
    def finish_node(self, ops: NodeOps) -> None: ...


class RecordingMode(Unseen):
    """Not reentrant, and of the thread that entered it (autograd's own threads included)."""

    def __init__(self, context: RunContext, looker: Looker) -> None:
        super().__init__()
        self.context = context
        self.looker = looker
        self.history_room = _HISTORY
        self.window = Window(context, looker)
        self.raised = RaisedOps(context)
        self.ops = 0
        self.below = 0  # modes that were there before this one
        self.capturing = False  # a CUDA graph
        self._entered: list[Any] = []  # the nodes that have run in this backward pass
        self._seen = SeenNodes()

    def __enter__(self) -> Any:
        self.below = _modes_left()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        looker, context = self.looker, self.context
        if context.halted:
            context.halt_again()
        kwargs = kwargs or {}
        if self.capturing or _modes_left() > self.below:
            # A tracer (make_fx, FakeTensorMode) lies below all modes: there are no values to look
            # at, and a question of ours would become part of what it traces.
            return func(*args, **kwargs)
        self.ops += 1
        info = read_schema(func)
        node = _current_node()
        running = context.running
        if node is not running.node:
            self._enter_node(node)
            running = context.running
        before = self._before_write(info, args, kwargs) if info.written else None

        try:
            out = func(*args, **kwargs)
        except Exception as error:
            self.raised.note(info, args, kwargs, sys._getframe(1), error)
            raise

        profiling = is_profiling()
        if profiling:
            record_for_profiler(False)
        try:
            seq = _sequence_nr()
            noted = seq != context.seq
            if noted:
                self._note_call(info, seq, node, args)
                if looker.margins is not None and node is None:
                    looker.measure_margins(self._ran(info, args, kwargs, out, seq, before))
            elif info.written and (taken := self._note_after_clone(info, seq, args, kwargs)):
                seq, noted = taken.start + 1, True
            if info.matrix:
                self.raised.note_matrix(info, args, kwargs, sys._getframe(1))
            if node is None and not context.in_optimizer:
                looker.note_operands(info, args, out)
                if info.shifts and not info.written:
                    looker.note_result(args, out, sys._getframe(1))
            if info.receives:
                context.received.note(self._ran(info, args, kwargs, out, seq, before))
                return out
            if info.skip:
                if type(out) in (float, bool) and node is None:
                    looker.note_read(args[0], out, sys._getframe(1))
                return out
            if node is not None:
                if looker.overwrites:
                    looker.check_overwrites(running, args)
                running.ops.append((info, args, kwargs))
                if type(out) is torch.Tensor:
                    running.made.add(out._cdata)
            if (
                info.allocates
                or (type(out) is torch.Tensor and not out.is_cpu)
                or not (
                    info.finite
                    or (info.hands_on and _was_seen(args[0], node))
                    or self._is_plainly_finite(out, seq if noted else 0, info)
                )
                or context.provenance.are_read(info, args, kwargs)
            ):
                made = seq if noted else None
                self._look_closer(self._ran(info, args, kwargs, out, made, before))
        finally:
            if profiling:
                record_for_profiler(True)
        return out

    def _ran(self, *op: Any) -> OpRun:
        """Asked by the dispatch itself, of the op that it has just run."""
        return self.context.op_run(sys._getframe(2), *op)

    def _note_value(self, seq: int, value: float) -> None:
        """A single number that a call gave, which may turn out to be a term of the loss."""
        calls = self.context.journal.calls
        calls[seq - 1] = calls[seq - 1]._replace(value=value)

    def _look_closer(self, op: OpRun) -> None:
        """Ops on a device wait for their window, unless a bad value is known to be near."""
        if op.info.allocates:
            self.looker.examine(op)
            return
        results = op.written() or flatten(op.out)
        waits = any(not (result.is_cpu or result.is_meta) for result in results)
        if waits and not self.context.provenance.are_read(op.info, op.args, op.kwargs):
            self.window.add(op)
            return
        self.window.close()  # what the op read may have become bad there
        self.looker.examine(op)

    def _is_plainly_finite(self, out: Any, seq: int, info: OpInfo) -> bool:
        """True when one cheap look proves every output finite; False asks for a closer look."""
        kind = type(out)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if out._is_zerotensor():
                return True  # all zeros without memory: reading it would crash
            dtype = out.dtype
            if dtype in _FULL:
                try:
                    total = out.sum().item()
                except (RuntimeError, NotImplementedError):
                    return False  # meta, nested, ...: the closer look knows them
                if seq and out.dim() == 0:
                    self._note_value(seq, total)
            elif dtype in _HALF or dtype in _OTHER:
                try:
                    total = quick_total(out)
                except (RuntimeError, NotImplementedError):
                    return False
            else:
                return True
            return bool(total - total == 0.0)
        if out is None or kind in (int, bool, float, str, torch.dtype, torch.device):
            return not info.written
        return False

    def _note_call(self, info: OpInfo, seq: int, node: Any, args: tuple[Any, ...]) -> None:
        """Remember where the op was called that made the node `seq - 1`.

        A node made by an op takes its number just before the op gets here. Numbers in between
        belong to nodes made after the last op returned (CopySlices, regenerated views).
        """
        context = self.context
        user, inner = note_site(sys._getframe(2), context.module)
        made_in = node._sequence_nr() if node is not None else None
        if made_in is not None and not user:
            earlier = context.journal.call_of(made_in)
            if earlier is not None:
                user, inner = earlier.user, earlier.inner
        constant = None
        if info.shifts and len(args) > 1 and type(args[1]) in (int, float):
            constant = float(args[1])
        if info.hangs_on_modes:
            context.rounded_otherwise[info.name] = None
        context.journal.calls[seq - 1] = Note(
            info, user, inner, context.module, made_in=made_in, constant=constant
        )
        context.seq = seq

    def _note_after_clone(
        self, info: OpInfo, seq: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> range:
        """Put an in-place op in the place of the clone that autograd made for it, if it did."""
        calls = self.context.journal.calls
        module = self.context.module
        taken = numbers_taken(seq, info, args, kwargs, calls, sys._getframe(2), module)
        if taken:
            calls.update(dict.fromkeys(taken, calls[seq - 1]._replace(info=info, value=None)))
        return taken

    def _enter_node(self, node: Any) -> None:
        """Another autograd node runs now (None: forward again)."""
        context = self.context
        done = context.running
        if done.events:
            self.looker.finish_node(done)
        if done.ops and self.history_room > 0:
            self.history_room -= done.nbytes()
            if self.history_room > 0:
                context.history.append(done)
            else:
                context.history.clear()
        context.running = NodeOps(node)
        if node is not None:
            self._entered.append(node)

    def _before_write(
        self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor | None:
        """A copy of the operand that the op will overwrite, where the report would need it."""
        if self.window.is_open:
            self.window.before_write(info.written_tensors(args, kwargs))
        context = self.context
        if args and not context.in_optimizer and context.running.node is None:
            self.looker.note_write(info, args[0], sys._getframe(2))
        if not args or not isinstance(args[0], torch.Tensor):
            return None
        # In backward the engine adds the gradients of two branches: which sign of inf was there?
        added_to_inf = info.shifts and context.running.node is not None and context.provenance
        if not (info.keeps_operand or added_to_inf):
            return None
        if info.name == "div" and len(args) > 1 and type(args[1]) in (int, float) and args[1]:
            return None  # what dropout does to its mask, at every step
        try:
            return args[0].clone()
        except (RuntimeError, MemoryError):
            return None  # the program writes in place because there is no room for two

    def note_unpacked(self, tensor: Any) -> None:
        node = _current_node()
        if node is not self.context.running.node:
            self._enter_node(node)
        running = self.context.running
        running.unpacked.append(tensor)
        # What ran until now was the hook's own work (a checkpoint's forward), not the formula.
        running.ops.clear()
        running.made.clear()

    def begin(self) -> None:
        """It is about to see ops again."""
        self.context.seq = _sequence_nr()

    def forget_history(self) -> None:
        self.context.history.clear()
        self.history_room = _HISTORY

    def leave(self, roots: Sequence[torch.Tensor]) -> None:
        """The backward pass of these is over: let go of what it held."""
        if not self._entered and self.context.running.node is None:
            return  # it was not seen
        self.window.close()
        self._enter_node(None)
        self._seen.hold(roots, self._entered)
        self._entered = []


hide_from_dynamo(RecordingMode.__torch_dispatch__)


def _was_seen(tensor: Any, node: Any) -> bool:
    """Whether an observed op made the tensor, so that it is known to be finite."""
    if type(tensor) is not torch.Tensor:
        return False
    return node is not None or (tensor.requires_grad and not tensor.is_leaf)
