"""What has to be put around torch's own functions while a program is recorded, and taken off.

Everything is undone in reverse order on every way out. In a thread that is not the recorder's,
the originals run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from gradscope.record.capture import watch_captures
from gradscope.record.compiled import run_uncompiled
from gradscope.record.graph import function_name
from gradscope.record.journal import Note
from gradscope.record.mode import _sequence_nr
from gradscope.record.optimizers import watch_optimizers
from gradscope.record.running import follow_modules
from gradscope.record.schema import OpInfo
from gradscope.record.sites import current_frame, note_site
from gradscope.record.stand_ins import stand_in

if TYPE_CHECKING:
    from gradscope.record.recorder import Recorder


def install(recorder: Recorder, stack: ExitStack) -> None:
    """Put everything in place; `stack` takes it off."""
    thread = threading.get_ident()
    follow_modules(recorder, stack, thread, recorder.names.saw_root)
    stand_in(stack, torch.autograd.Function, "apply", _function_apply(recorder, thread))
    engine = _engine(recorder, thread)
    for owner in (torch.autograd, torch.autograd.graph):
        stand_in(stack, owner, "_engine_run_backward", engine, inner=True)
    stand_in(
        stack, torch.autograd.graph.saved_tensors_hooks, "__init__", _hooks_init(recorder, thread)
    )
    run_uncompiled(stack, recorder.note_uncompiled)
    made = recorder.limit.note_optimizer
    watch_optimizers(stack, recorder.optimizer_begins, recorder.optimizer_ends, made)
    watch_captures(stack, recorder.capture_begins, recorder.capture_ends)


def _function_apply(recorder: Recorder, thread: int) -> Callable[..., Any]:
    """Notes the call of a custom Function under its node's number. Its own forward runs without
    grad, so the first op in there would take that number otherwise."""
    original = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread or recorder.halted or recorder.probing:
            return original(cls, *args, **kwargs)
        if not recorder.computes_values():
            return original(cls, *args, **kwargs)
        user, inner = note_site(current_frame(), recorder.module)
        recorder.calls_function(cls, args, kwargs, original, user)
        seq = _sequence_nr()
        result = original(cls, *args, **kwargs)
        if _sequence_nr() > seq:
            name = function_name(cls)
            info = OpInfo(name, "", (), False, False, False, ())
            recorder.journal.calls[seq] = Note(info, user, inner, recorder.module, name)
        return result

    return apply


def _engine(recorder: Recorder, thread: int) -> Callable[..., Any]:
    original = torch.autograd.graph._engine_run_backward

    def engine(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            recorder.elsewhere[threading.current_thread().name] = None
            return original(t_outputs, *args, **kwargs)
        if recorder.halted or recorder.probing or not recorder.computes_values():
            return original(t_outputs, *args, **kwargs)
        return recorder.run_backward(original, t_outputs, args, kwargs)

    return engine


def _hooks_init(recorder: Recorder, thread: int) -> Callable[..., Any]:
    """Sees what saved-tensor hooks (checkpoint, offloading) give back to a node. Unpacking a
    second time, to look for ourselves, would run the user's hook again."""
    original = torch.autograd.graph.saved_tensors_hooks.__init__

    def __init__(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def unpack(packed: Any) -> Any:
            tensor = unpack_hook(packed)
            if threading.get_ident() == thread:
                recorder.mode.note_unpacked(tensor)
            return tensor

        original(self, pack_hook, unpack)

    return __init__
