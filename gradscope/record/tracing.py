"""Whether ops compute values now, which is asked before anything of ours runs an op, and how ours
run without being seen."""

from collections.abc import Callable
from typing import Any

import torch

_TRACERS = tuple(torch._C._TorchDispatchModeKey.__members__.values())  # proxy, fake, functional
_modes = torch._C._len_torch_dispatch_stack
_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_active = torch._C._get_dispatch_mode
_DEVICE_ASSERT = 710  # cudaErrorAssert, which torch hands on with its AcceleratorError
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


def is_device_assert(error: BaseException | None) -> bool:
    """Whether a kernel on a GPU has refused its operands: from then on nothing there can be read,
    by nobody."""
    return getattr(error, "error_code", None) == _DEVICE_ASSERT


def is_observed() -> bool:
    """Whether a mode or a profiler would see a question of ours now."""
    return _modes() > 0 or _function_modes() > 0 or is_profiling()


class unprofiled:
    """Context manager: a profiler of the program's does not list what runs inside."""

    __slots__ = ("_profiling",)

    def __enter__(self) -> None:
        self._profiling = is_profiling()
        if self._profiling:
            record_for_profiler(False)

    def __exit__(self, *failure: object) -> None:
        if self._profiling:
            record_for_profiler(True)


class unobserved:
    """Context manager: what we ask of tensors is not the program's. No mode, no class of tensors
    with a protocol of its own and no profiler sees it, also where only an attribute is read, and it
    makes no graph. A class, since it is entered several times in each step."""

    __slots__ = ("_functions", "_profiling", "_unseen", "had_grad")

    def __enter__(self) -> "unobserved":
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._profiling = is_profiling()
        if self._profiling:
            record_for_profiler(False)
        self.had_grad = torch.is_grad_enabled()
        self._unseen = torch._C._DisableTorchDispatch()
        torch._C._set_grad_enabled(False)
        return self

    def __exit__(self, *failure: object) -> None:
        torch._C._set_grad_enabled(self.had_grad)
        del self._unseen
        if self._profiling:
            record_for_profiler(True)
        self._functions.__exit__(None, None, None)

    def except_for(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do some work of the program's from within: as ever."""
        self.__exit__()
        try:
            return work(*args, **kwargs)
        finally:
            self.__enter__()
