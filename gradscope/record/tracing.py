"""Whether ops compute values now. Asked before anything of ours runs an op."""

from __future__ import annotations

import torch

from gradscope.record.capture import is_capturing

_TRACERS = tuple(torch._C._TorchDispatchModeKey.__members__.values())  # proxy, fake, functional
_active = torch._C._get_dispatch_mode
_tracing_state = torch._C._get_tracing_state


def computes_values() -> bool:
    """False where a tracer runs the program to write its ops down (make_fx, AOT, export, fake
    tensors, `torch.jit.trace`) or a CUDA graph captures them: what an op of ours would be given has
    no values then, and the op would become a part of what is written down."""
    if _tracing_state() is not None or any(_active(key) is not None for key in _TRACERS):
        return False
    return not is_capturing()
