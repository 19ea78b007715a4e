"""The ways to run a training step: bare, under gradscope, and under other tools that look for bad
values. One whose package is absent is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.modules.module import register_module_forward_hook

from gradscope.norms import NormOptions
from gradscope.norms.meter import Measure
from gradscope.record import Observation
from gradscope.record.depth import Depth
from gradscope.record.sizes.account import Account, Fading

AfterStep = Callable[[], object]
Way = Callable[[], AbstractContextManager[AfterStep]]
LINES_KEPT = 1_000
INSPECTED_UNTIL = 512


def nothing() -> None:
    pass


def never(*args: Any, **kwargs: Any) -> bool:
    return False


def endlessly(*args: Any, **kwargs: Any) -> float:
    return math.inf


def endless(*args: Any, **kwargs: Any) -> tuple[float, float]:
    return math.inf, math.inf


@contextmanager
def bare() -> Iterator[AfterStep]:
    yield nothing


@contextmanager
def watching() -> Iterator[AfterStep]:
    """As `gradscope trace` watches late in a run: without what it looks at ever more rarely."""
    rare: list[Any] = [
        patch.object(Depth, "is_due", never),
        patch.object(Depth, "calm", endless),
        patch.object(Account, "calm_updates", math.inf),
        patch.object(Fading, "due_in", endlessly),
    ]
    with ExitStack() as stack:
        stack.enter_context(Observation(full_from=None))
        for one in rare:
            stack.enter_context(one)
        pass_inspections()
        yield nothing


@contextmanager
def in_full() -> Iterator[AfterStep]:
    """As `gradscope trace` records and measures the steps that it looks at in full."""
    with Observation():
        pass_inspections()
        yield nothing


@contextmanager
def norms() -> Iterator[AfterStep]:
    """As `gradscope norms` measures, without an end."""
    with Observation(measure=Measure(NormOptions()), each_op=False):
        pass_inspections()
        yield nothing


def pass_inspections() -> None:
    """The steps 0, 1, 2, 4, 8, ... are inspected in full, which is no part of an ordinary step's
    price; after the 512 passes of this the next one is far."""
    leaf = torch.ones(1, requires_grad=True)
    for _ in range(INSPECTED_UNTIL + 1):
        leaf.grad = None
        leaf.sum().backward()


@contextmanager
def anomaly() -> Iterator[AfterStep]:
    with torch.autograd.set_detect_anomaly(True):
        yield nothing


@contextmanager
def forward_hooks() -> Iterator[AfterStep]:
    """What transformers' `DebugUnderflowOverflow` does at every module: the smallest and largest
    absolute value of its weights, inputs and outputs, and whether any is NaN or inf."""
    lines: list[str] = []

    def look(name: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            return
        size = value.abs()
        lines.append(f"{size.min():8.2e} {size.max():8.2e} {name}")
        if value.isnan().any().item() or value.isinf().any().item():
            raise ValueError(f"{name} is not finite")

    def after_forward(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            look(name, parameter)
        for value in inputs:
            look("input", value)
        for value in output if isinstance(output, tuple) else (output,):
            look("output", value)
        del lines[:-LINES_KEPT]

    hook = register_module_forward_hook(after_forward)
    try:
        yield nothing
    finally:
        hook.remove()


@contextmanager
def debug_mode() -> Iterator[AfterStep]:
    """Torch's log of every op with a hash of its result; what it holds is dropped every step."""
    from torch.utils._debug_mode import DebugMode

    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        yield mode.reset


@contextmanager
def sherlorch() -> Iterator[AfterStep]:
    """Its graph of ops, without source lines; dropped every step, as its documentation asks."""
    from sherlorch import trace  # type: ignore[import-not-found,unused-ignore]

    with trace() as tracker:
        yield tracker.reset


OURS = ("watching", "in full", "norms")
OTHERS: dict[str, tuple[Way, str]] = {  # with the module that it needs
    "anomaly mode": (anomaly, "torch.autograd"),
    "forward hooks": (forward_hooks, "torch.nn"),
    "DebugMode": (debug_mode, "torch.utils._debug_mode"),
    "sherlorch": (sherlorch, "sherlorch"),
}
WAYS: dict[str, Way] = {
    "bare": bare,
    "watching": watching,
    "in full": in_full,
    "norms": norms,
    **{name: way for name, (way, module) in OTHERS.items() if find_spec(module) is not None},
}
