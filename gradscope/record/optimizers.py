"""What an optimizer holds, and being told when it steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gradscope.record.capture import is_capturing


def parameters_of(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def watch_optimizers(
    stack: ExitStack, before: Callable[[Any], None], after: Callable[[Any], None]
) -> None:
    """Call `before` and `after` with each optimizer that steps in this thread, until `stack` ends.

    Torch's hooks are of the whole process. Another thread trains on parameters of its own, and
    reading their gradients from here, while it replaces them, crashes natively.
    """
    thread = threading.get_ident()

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() == thread and not is_capturing():
            before(optimizer)

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() == thread and not is_capturing():
            after(optimizer)

    stack.callback(register_optimizer_step_pre_hook(begin).remove)
    stack.callback(register_optimizer_step_post_hook(end).remove)
