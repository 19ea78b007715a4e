"""What a program can see of us: torch's functions look as they did, its profiler lists no op of
ours, and what it does to `sys.modules` is its own affair."""

import inspect
from collections.abc import Callable
from types import ClassMethodDescriptorType
from typing import Any

import pytest
import torch
from apart import traced
from torch.nn.utils import clip_grad
from torch.profiler import ProfilerActivity, profile

from gradscope.record import Observation

# Put there by us, for the compiler and where our own parameters are named otherwise.
ADDED = {"_torchdynamo_inline", "__signature__"}
REPLACED: list[tuple[Any, str]] = [
    (torch.nn.Module, "__call__"),
    (torch.autograd.Function, "apply"),
    (torch.autograd, "_engine_run_backward"),
    (torch.autograd.graph, "_engine_run_backward"),
    (torch.autograd.graph.saved_tensors_hooks, "__init__"),
    (torch, "compile"),
    (torch.utils, "swap_tensors"),
    (clip_grad, "_clip_grads_with_norm_"),
    (torch.amp.GradScaler, "unscale_"),
    (torch.cuda.CUDAGraph, "capture_begin"),
]


# Which of them torch 2.14 has written in C, where there is less to ask.
IN_C = {
    name
    for owner, name in REPLACED
    if isinstance(inspect.getattr_static(owner, name), ClassMethodDescriptorType)
}


def look(owner: Any, name: str) -> list[object]:
    """All that can be asked of a function but its code."""
    found = inspect.getattr_static(owner, name)
    kind, function = type(found), getattr(found, "__func__", found)
    if name in IN_C:
        return [getattr(function, one) for one in ("__name__", "__qualname__", "__doc__")]
    told = ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__")
    attributes = {key: one for key, one in vars(function).items() if key not in ADDED}
    signature = inspect.signature(function)
    return [kind, signature, attributes, *(getattr(function, one) for one in told)]


@pytest.mark.parametrize(("owner", "name"), REPLACED, ids=[name for _, name in REPLACED])
def test_a_function_of_torch_looks_as_it_did(owner, name):
    bare, code = look(owner, name), inspect.getattr_static(owner, name)
    with Observation():
        assert inspect.getattr_static(owner, name) is not code
        assert look(owner, name) == bare
    assert inspect.getattr_static(owner, name) is code


def step() -> None:
    x = torch.ones(3, requires_grad=True)
    (torch.nn.Tanh()(x) * 2).sum().backward()


def profiled(run: Callable[[], None]) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return {one.key for one in seen.key_averages()}


def test_the_profiler_of_the_program_lists_no_op_of_ours():
    bare = profiled(step)
    with Observation():
        assert profiled(step) - bare == {"PythonDispatchMode"}  # torch's, under any dispatch mode


def test_nor_what_is_asked_before_a_copy_of_the_process_is_made():
    bare, asked = profiled(step), []
    with Observation(alone=True, between_steps=lambda seen: asked.append(seen.is_clean())):
        assert profiled(step) - bare == {"PythonDispatchMode"}
    assert asked == [True]


@pytest.mark.parametrize("thrown_out", ["sys.modules.clear()", "sys.modules = {}"])
def test_modules_that_the_program_throws_out(thrown_out, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import sys\nimport torch\n\nx = torch.zeros(1, requires_grad=True)\n"
        f"(x * 2).sum().backward()\n{thrown_out}\nraise ValueError('mine')\n",
        encoding="utf-8",
    )

    ending = traced(path).trace.ending

    assert (ending.kind, ending.detail) == ("raised", "ValueError: mine")
