"""Whether ops compute values now, which is asked before anything of ours runs an op, and how ours
run without being seen."""

import torch

_TRACERS = tuple(torch._C._TorchDispatchModeKey.__members__.values())  # proxy, fake, functional
_modes = torch._C._len_torch_dispatch_stack
_active = torch._C._get_dispatch_mode
is_profiling = torch._C._autograd._profiler_enabled
record_for_profiler = torch._C._autograd._enable_record_function
_tracing_state = torch._C._get_tracing_state


def computes_values() -> bool:
    """False where a tracer runs the program to write its ops down (make_fx, AOT, export, fake
    tensors, `torch.jit.trace`) or a CUDA graph captures them: what an op of ours would be given has
    no values then, and the op would become a part of what is written down."""
    if is_jit_tracing() or (_modes() and any(_active(one) is not None for one in _TRACERS)):
        return False
    return not is_capturing()


def is_jit_tracing() -> bool:
    return _tracing_state() is not None


def is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_observed() -> bool:
    """Whether a mode or a profiler would see an op of ours now."""
    return _modes() > 0 or is_profiling()


class unobserved:
    """Context manager: our own arithmetic is not the program's. No mode and no profiler sees it,
    and it makes no graph. A class, since it is entered several times in each step."""

    __slots__ = ("_had_grad", "_profiling", "_unseen")

    def __enter__(self) -> None:
        self._profiling = is_profiling()
        if self._profiling:
            record_for_profiler(False)
        self._had_grad = torch.is_grad_enabled()
        self._unseen = torch._C._DisableTorchDispatch()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *failure: object) -> None:
        torch._C._set_grad_enabled(self._had_grad)
        del self._unseen
        if self._profiling:
            record_for_profiler(True)
