"""What `torch.compile` compiles runs uncompiled while every op is observed: a compiled graph shows
none of its ops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from gradscope.record.stand_ins import stand_in


def run_uncompiled(stack: ExitStack, note: Callable[[], None]) -> None:
    """Until `stack` ends. `note` is told when the program compiles something."""
    original: Any = torch.compile

    def compile(*args: Any, **kwargs: Any) -> Any:
        from torch._higher_order_ops.utils import _in_hop_compile

        result = original(*args, **kwargs)
        if _in_hop_compile():
            # `torch.cond` and its kin capture their branches so, and cannot run otherwise.
            return _as_ever(result)
        note()
        _be_eager(stack)
        return result

    stand_in(stack, torch, "compile", compile)
    # Asking Dynamo imports it, so it is asked only where it is there already: something may have
    # been compiled before.
    if "torch._dynamo.eval_frame" in sys.modules:
        _be_eager(stack)


def _as_ever(captured: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        from torch._dynamo import eval_frame

        before = eval_frame._set_stance(eval_frame.DynamoStance())
        try:
            return captured(*args, **kwargs)
        finally:
            eval_frame._set_stance(before)

    return call


def _be_eager(stack: ExitStack) -> None:
    from torch._dynamo import eval_frame

    ours = eval_frame.DynamoStance("force_eager")
    if eval_frame._stance == ours:
        return
    before = eval_frame._set_stance(ours)

    def restore() -> None:
        if eval_frame._stance is ours:  # else the program has taken another one meanwhile
            eval_frame._set_stance(before)

    stack.callback(restore)
