"""The steps in full: sees every aten op, keeps the healthy path as short as it can be.

What is done at every op: run it, see whether an autograd node was made (then note the call
site), and look at one sum of the result. Everything else happens only near a bad value.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradscope.facts import NotChecked
from gradscope.record.broadcasts import Broadcasts
from gradscope.record.context import RunContext
from gradscope.record.dispatch import Dispatch
from gradscope.record.events.examine import Examiner
from gradscope.record.events.reads import BadReads
from gradscope.record.finite import HALF, item, quick_total, runs_later
from gradscope.record.journal import Note, Raw
from gradscope.record.margins import Margins
from gradscope.record.oprun import NodeOps, OpRun, asked_by_user, flatten, runs_forward_again
from gradscope.record.overwrites import Overwrites
from gradscope.record.polyak import PolyakAverages
from gradscope.record.raised import RaisedOps
from gradscope.record.redraws import Redraws
from gradscope.record.refusals import Notes
from gradscope.record.schema import OpInfo, read_schema
from gradscope.record.sites import called_by_engine, note_site
from gradscope.record.sizes.built import is_number_zero
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.stand_ins import runs_ops
from gradscope.record.tracing import unprofiled
from gradscope.record.window import Window

_current_node = torch._C._current_autograd_node
_FULL = frozenset({torch.float32, torch.float64})
_OTHER = frozenset(
    {torch.complex64, torch.complex128, torch.complex32}
    | {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
)
_HISTORY = 32 * 2**20  # bytes held of one backward pass, to tell afterwards who sent a zero


class RecordingMode(Dispatch):
    """`on_bad_write` is told of an event that gave bad values, and of the tensors that it wrote."""

    def __init__(
        self,
        context: RunContext,
        sizes: Sizes,
        on_bad_write: Callable[[Raw, Sequence[torch.Tensor]], None],
        *,
        hazards: bool,
    ) -> None:
        super().__init__(context)
        self.sizes = sizes
        self.reads = BadReads(context, lambda: self.window.close())
        self.margins = Margins(context) if hazards else None
        self.broadcasts = Broadcasts(context)
        self.redraws = Redraws(context)
        self.polyak = PolyakAverages(context)
        self.examiner = Examiner(context, on_bad_write, self.reads)
        self.overwrites = Overwrites(context)
        self.refusable = Notes(context)
        self.history_room = _HISTORY
        self.window = Window(context, self.examiner)
        self.raised = RaisedOps(context)
        self.ops = 0
        self._note_operands = sizes.usages.note_operands
        self._entered: list[Any] = []  # the nodes that have run in this backward pass

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        by_reading = (self.margins, self.overwrites, self.examiner, self.context.journal)
        return tuple(one for by in by_reading if by is not None for one in by.not_checked)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = self.context
        if context.halted:
            context.halt_again()
        self.ops += 1
        info = read_schema(func)
        node = _current_node()
        running = context.running
        before = None
        try:
            if node is not running.node:
                self._enter_node(node)
                running = context.running
            if info.written:
                with unprofiled():
                    before = self._before_write(info, args, kwargs)
        except Exception as fault:
            context.could_not_look_at(info.name, fault)

        if info.draws:
            context.shielded(info.name, self.redraws.note, info, args, kwargs, sys._getframe(1))
            context.shielded(info.name, self.sizes.modes.dropouts.note, sys._getframe(1))
        if info.refuses and any(map(runs_later, args)):
            noted_before = info, args, kwargs, sys._getframe(1)
            context.shielded(info.name, self.raised.note_before, *noted_before)
        try:
            out = func(*args, **kwargs)
        except Exception as error:
            noted = info, args, kwargs, sys._getframe(1), error
            context.shielded(info.name, self.raised.note, *noted)
            raise

        try:
            with unprofiled():
                self.made = made = self.note_call(info, node, args, kwargs)
                if made and made == context.seq and node is None:
                    if self.margins is not None:
                        ran = self._ran(info, args, kwargs, out, made, before)
                        context.shielded(info.name, self.margins.measure, ran)
                    if len(args) > 1 and type(args[1]) is torch.Tensor:
                        noted = info, args, made - 1, sys._getframe(1)
                        context.shielded(info.name, self.broadcasts.note, *noted)
                elif node is None and not context.in_optimizer and _is_square(out):
                    noted = info, args, out, sys._getframe(1)
                    context.shielded(info.name, self.broadcasts.note_constant, *noted)
                if info.matrix:
                    self.raised.note_matrix(info, args, kwargs, sys._getframe(1))
                if node is None and not context.in_optimizer:
                    self._note_operands(info, args, out)
                    if type(out) is torch.Tensor and (out.dtype in HALF or context.bounds):
                        noted = func, info, args, kwargs, out, made, sys._getframe(1)
                        context.shielded(info.name, context.bounds.note, *noted, context.module)
                    if info.shifts and not info.written:
                        self.sizes.note_result(args, out, sys._getframe(1))
                    if self.polyak.unread:
                        self.polyak.note_read(args)
                    if info.blends and type(out) is torch.Tensor and not out.requires_grad:
                        noted = info, args, kwargs, out, sys._getframe(1)
                        context.shielded(info.name, self.polyak.note, *noted)
                if info.sends and context.provenance.are_read(info, args, kwargs):
                    context.received.note_handed(info.tensors(args, kwargs))
                if info.receives:
                    context.received.note(self._ran(info, args, kwargs, out, made, before))
                    return out
                if info.skip:
                    if type(out) in (float, bool) and node is None:
                        self.note_read(args[0], out, sys._getframe(1))
                    return out
                if node is not None:
                    if self.overwrites.any:
                        context.shielded("backward", self.overwrites.check, running, args)
                    running.ops.append((info, args, kwargs))
                    if type(out) is torch.Tensor:
                        running.made.add(out._cdata)
                if (
                    info.allocates
                    or (type(out) is torch.Tensor and not out.is_cpu)
                    or not (
                        info.finite
                        or (info.hands_on and _was_seen(args[0], node))
                        or self._is_plainly_finite(out, made, info)
                    )
                    or context.provenance.are_read(info, args, kwargs)
                ):
                    self._look_closer(self._ran(info, args, kwargs, out, made, before))
        except Exception as fault:
            context.could_not_look_at(info.name, fault)
        return out

    def note_read(self, tensor: Any, value: float | None, frame: Any) -> None:
        """The program made a Python number of a tensor, or (None) a text, an array of it all."""
        self.context.shielded("item", self.reads.note, tensor, value, frame)

    def _ran(
        self,
        info: OpInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        made: int,
        before: torch.Tensor | None,
    ) -> OpRun:
        """The op that was just run, with its surroundings."""
        context, frame = self.context, sys._getframe(2)
        in_node = context.running.node is not None
        return OpRun(
            Note(info, *note_site(frame), context.module),
            args,
            kwargs,
            out,
            made or None,
            before,
            by_engine=in_node and called_by_engine(frame),
            by_user=asked_by_user(frame),
            again=in_node and runs_forward_again(frame),
            running=context.running,
            optimizing=context.in_optimizer,
            step=context.step,
        )

    def _look_closer(self, op: OpRun) -> None:
        """Ops on a device wait for their window, unless a bad value is known to be near."""
        if op.info.allocates:
            self.examiner.examine(op)
            return
        results = op.written() or flatten(op.out)
        waits = any(not (result.is_cpu or result.is_meta) for result in results)
        if waits and not self.context.provenance.are_read(op.info, op.args, op.kwargs):
            self.window.add(op)
            return
        self.window.close()  # what the op read may have become bad there
        self.examiner.examine(op)

    def _is_plainly_finite(self, out: Any, seq: int, info: OpInfo) -> bool:
        """True when one cheap look proves every output finite; False asks for a closer look."""
        kind = type(out)
        if kind is tuple and not info.written:
            on_device = any(isinstance(one, torch.Tensor) and not one.is_cpu for one in out)
            return not on_device and all(self._is_plainly_finite(one, 0, info) for one in out)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if out._is_zerotensor():
                return True  # all zeros without memory: reading it would crash
            is_full = out.dtype in _FULL
            if not (is_full or out.dtype in HALF or out.dtype in _OTHER):
                return True
            try:
                total: Any = item(out.sum()) if is_full else quick_total(out)
            except (RuntimeError, NotImplementedError):
                return False  # meta, nested, ...: the closer look knows them
            if seq and is_full and out.dim() == 0:  # it may turn out to be a term of the loss
                calls = self.context.journal.calls
                calls[seq - 1] = calls[seq - 1]._replace(value=total)
            return bool(total - total == 0.0)
        if out is None or kind in (int, bool, float, str, torch.dtype, torch.device):
            return not info.written
        return False

    def _note_write(self, info: OpInfo, tensor: Any, frame: Any) -> None:
        noted = self.refusable.note_write(info, tensor, frame)
        if noted is not None and not noted.within:
            self.overwrites.note(noted, tensor)

    def _enter_node(self, node: Any) -> None:
        """Another autograd node runs now (None: forward again)."""
        context = self.context
        done = context.running
        if done.events:
            self.examiner.finish_node(done)
        if done.ops and self.history_room > 0:
            self.history_room -= done.nbytes()
            if self.history_room > 0:
                context.history.append(done)
            else:
                context.history.clear()
        context.running = NodeOps(node, context.journal.transforms)
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
            frame = sys._getframe(2)
            self.sizes.note_write(args[0], frame)
            context.shielded(info.name, self.sizes.modes.followers.note_write, args[0], frame)
            if info.name == "zero" or (info.name in ("fill", "mul") and is_number_zero(args[1])):
                context.built.note_zeroed(args[0], frame)
            context.shielded(info.name, self._note_write, info, args[0], frame)
        elif args and hasattr(context.running.node, "_forward_cls"):  # a custom Function's backward
            context.shielded(info.name, self._note_write, info, args[0], sys._getframe(2))
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

    def forget_history(self) -> None:
        self.context.history.clear()
        self.history_room = _HISTORY

    def leave(self, roots: Sequence[torch.Tensor]) -> None:
        """The backward pass of these is over: let go of what it held."""
        if not self._entered and self.context.running.node is None:
            return  # it was not seen
        self.window.close()
        self._enter_node(None)
        self.context.seen.hold(roots, self._entered)
        self._entered = []


runs_ops(RecordingMode.run)


def _is_square(out: Any) -> bool:
    return type(out) is torch.Tensor and out.dim() == 2 and out.shape[0] == out.shape[1]


def _was_seen(tensor: Any, node: Any) -> bool:
    """Whether an observed op made the tensor, so that it is known to be finite."""
    if type(tensor) is not torch.Tensor:
        return False
    return node is not None or (tensor.requires_grad and not tensor.is_leaf)
