"""Whether ops compute values now, which is asked before anything of ours runs an op, and how ours
run without being seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gradscope.record.capture import is_capturing

_TRACERS = tuple(torch._C._TorchDispatchModeKey.__members__.values())  # proxy, fake, functional
_active = torch._C._get_dispatch_mode
is_profiling = torch._C._autograd._profiler_enabled
record_for_profiler = torch._C._autograd._enable_record_function
_tracing_state = torch._C._get_tracing_state


def computes_values() -> bool:
    """False where a tracer runs the program to write its ops down (make_fx, AOT, export, fake
    tensors, `torch.jit.trace`) or a CUDA graph captures them: what an op of ours would be given has
    no values then, and the op would become a part of what is written down."""
    if _tracing_state() is not None or any(_active(key) is not None for key in _TRACERS):
        return False
    return not is_capturing()


@contextmanager
def unobserved() -> Iterator[None]:
    """Our own arithmetic is not the program's: no mode and no profiler sees it, and it makes no
    graph."""
    profiling = is_profiling()
    if profiling:
        record_for_profiler(False)
    try:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            yield
    finally:
        if profiling:
            record_for_profiler(True)
