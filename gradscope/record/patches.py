"""What has to be put around torch's own functions while a program is recorded, and taken off.

Everything is undone in reverse order on every way out. In a thread that is not the
program's, the originals run.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import torch

from gradscope.record.context import RunContext
from gradscope.record.depth import Depth
from gradscope.record.events.received import follow_objects
from gradscope.record.finite import has_nan, plain
from gradscope.record.graph import function_name
from gradscope.record.journal import Note
from gradscope.record.mode import RecordingMode, _sequence_nr
from gradscope.record.probes.function_checks import FunctionChecks
from gradscope.record.schema import OpInfo
from gradscope.record.sites import OURS, current_frame, kind_of, note_site
from gradscope.record.stand_ins import stand_in
from gradscope.record.tracing import computes_values, unobserved, watch_captures


class OpReading(Protocol):
    """What is told of the program by what is put around torch's functions."""

    context: RunContext
    depth: Depth

    def sees_ops(self) -> bool: ...
    def note_read(self, tensor: Any, value: float | None, frame: Any) -> None: ...
    def note_watched_nan(self, frame: Any) -> None: ...
    def capture_begins(self) -> None: ...
    def capture_ends(self) -> None: ...


def install(reading: OpReading, mode: RecordingMode, stack: ExitStack, thread: int) -> None:
    """Put everything in place that looks at ops; `stack` takes it off."""
    hooks = torch.autograd.graph.saved_tensors_hooks
    stand_in(stack, hooks, "__init__", _hooks_init(mode, thread))
    tensors: Any = torch.Tensor
    reads = [(tensors, name) for name in ("tolist", "numpy", "__reduce_ex__")]
    for owner, name in (*reads, (torch._tensor_str, "_str")):
        stand_in(stack, owner, name, _telling_reads(reading, getattr(owner, name), thread))
    for name in ("item", "__float__"):
        stand_in(stack, tensors, name, _telling_nan(reading, getattr(tensors, name), thread))
    context, depth = reading.context, reading.depth
    depth.compiled.follow(stack, lambda: depth.note_compiled(context.step))
    follow_objects(stack, context.received)
    watch_captures(stack, reading.capture_begins, reading.capture_ends)


def _telling_reads(reading: OpReading, original: Any, thread: int) -> Callable[..., Any]:
    """A list, an array, a pickle (`torch.save`) and a text of a tensor: all are made without an op
    that a mode could see, in C++ or with all modes off."""

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        is_foreign = threading.get_ident() != thread or kind_of(frame.f_code) == OURS
        if not is_foreign and reading.sees_ops():
            reading.note_read(self, None, frame)
        elif not is_foreign and self.numel() == 1 and self.is_floating_point():
            with unobserved():
                if plain(self) is not None and has_nan(self):
                    reading.note_watched_nan(frame)
        return original(self, *args, **kwargs)

    return read


def _telling_nan(reading: OpReading, original: Any, thread: int) -> Callable[..., Any]:
    """A number of a tensor, in a step whose ops nobody sees: in the others their mode does."""

    def read(self: Any) -> Any:
        value = original(self)
        if value != value and not reading.depth.is_full and threading.get_ident() == thread:
            reading.note_watched_nan(sys._getframe(1))
        return value

    return read


def follow_functions(
    context: RunContext, checks: FunctionChecks | None, stack: ExitStack, thread: int
) -> None:
    """Have each custom Function checked that is called, keep `context.function` true, and note the
    call under its node's number. Its own forward runs without grad, so the first op in there would
    take that number otherwise."""
    original: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread or context.is_blind or not computes_values():
            return original(cls, *args, **kwargs)
        user, inner = note_site(current_frame(), context.module)
        if checks is not None:
            checks.before(cls, args, kwargs, original, user)
        seq, name = _sequence_nr(), function_name(cls)
        outer, context.function = context.function, name
        try:
            result = original(cls, *args, **kwargs)
        finally:
            context.function = outer
        if _sequence_nr() > seq:
            context.journal.calls[seq] = Note(OpInfo(name), user, inner, context.module, name)
        return result

    stand_in(stack, torch.autograd.Function, "apply", apply)


def _hooks_init(mode: RecordingMode, thread: int) -> Callable[..., Any]:
    """Sees what saved-tensor hooks (checkpoint, offloading) give back to a node. Unpacking a
    second time, to look for ourselves, would run the user's hook again."""
    original = torch.autograd.graph.saved_tensors_hooks.__init__

    def __init__(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def unpack(packed: Any) -> Any:
            tensor = unpack_hook(packed)
            if threading.get_ident() == thread:
                mode.note_unpacked(tensor)
            return tensor

        original(self, pack_hook, unpack)

    return __init__
