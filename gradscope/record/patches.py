"""What has to be put around torch's own functions while a program is recorded, and taken off.

Everything is undone in reverse order on every way out. In a thread that is not the recorder's,
the originals run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import torch

from gradscope.record.context import RunContext
from gradscope.record.depth import Depth
from gradscope.record.events.received import follow_objects
from gradscope.record.graph import function_name
from gradscope.record.journal import Note
from gradscope.record.mode import _sequence_nr
from gradscope.record.running import follow_modules
from gradscope.record.schema import OpInfo
from gradscope.record.sites import OURS, Site, current_frame, kind_of, note_site
from gradscope.record.stand_ins import stand_in
from gradscope.record.tracing import watch_captures


class Recording(Protocol):
    """What is told of the program by what is put around torch's functions."""

    context: RunContext
    halted: bool
    depth: Depth

    @property
    def probing(self) -> bool: ...
    def computes_values(self) -> bool: ...
    def calls_function(self, cls: Any, args: Any, kwargs: Any, apply: Any, site: Site) -> None: ...
    def note_unpacked(self, tensor: Any) -> None: ...
    def note_read(self, tensor: Any, value: float | None, frame: Any) -> None: ...
    def note_compiled(self) -> None: ...
    def capture_begins(self) -> None: ...
    def capture_ends(self) -> None: ...


def install(recorder: Recording, stack: ExitStack) -> None:
    """Put everything in place; `stack` takes it off."""
    thread = threading.get_ident()
    follow_modules(recorder.context, stack, thread, recorder.context.names.saw_root)
    stand_in(stack, torch.autograd.Function, "apply", _function_apply(recorder, thread))
    stand_in(
        stack, torch.autograd.graph.saved_tensors_hooks, "__init__", _hooks_init(recorder, thread)
    )
    texts: Any = torch._tensor_str
    tensors: Any = torch.Tensor
    reading = ((tensors, "tolist"), (tensors, "numpy"), (tensors, "__reduce_ex__"), (texts, "_str"))
    for owner, name in reading:
        stand_in(stack, owner, name, _telling_reads(recorder, getattr(owner, name), thread))
    recorder.depth.compiled.follow(stack, recorder.note_compiled)
    follow_objects(stack, recorder.context.received)

    watch_captures(stack, recorder.capture_begins, recorder.capture_ends)


def _telling_reads(recorder: Recording, original: Any, thread: int) -> Callable[..., Any]:
    """A list, an array, a pickle (`torch.save`) and a text of a tensor: all are made without an op
    that a mode could see, in C++ or with all modes off."""

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        is_foreign = threading.get_ident() != thread or kind_of(frame.f_code) == OURS
        is_blind = recorder.halted or recorder.probing or not recorder.depth.is_full
        if not (is_foreign or is_blind):  # between steps in full no read counts, of any kind
            recorder.note_read(self, None, frame)
        return original(self, *args, **kwargs)

    return read


def _function_apply(recorder: Recording, thread: int) -> Callable[..., Any]:
    """Notes the call of a custom Function under its node's number. Its own forward runs without
    grad, so the first op in there would take that number otherwise."""
    original = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread or recorder.halted or recorder.probing:
            return original(cls, *args, **kwargs)
        if not recorder.computes_values():
            return original(cls, *args, **kwargs)
        user, inner = note_site(current_frame(), recorder.context.module)
        recorder.calls_function(cls, args, kwargs, original, user)
        seq = _sequence_nr()
        result = original(cls, *args, **kwargs)
        if _sequence_nr() > seq:
            name = function_name(cls)
            note = Note(OpInfo(name), user, inner, recorder.context.module, name)
            recorder.context.journal.calls[seq] = note
        return result

    return apply


def _hooks_init(recorder: Recording, thread: int) -> Callable[..., Any]:
    """Sees what saved-tensor hooks (checkpoint, offloading) give back to a node. Unpacking a
    second time, to look for ourselves, would run the user's hook again."""
    original = torch.autograd.graph.saved_tensors_hooks.__init__

    def __init__(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def unpack(packed: Any) -> Any:
            tensor = unpack_hook(packed)
            if threading.get_ident() == thread:
                recorder.note_unpacked(tensor)
            return tensor

        original(self, pack_hook, unpack)

    return __init__
