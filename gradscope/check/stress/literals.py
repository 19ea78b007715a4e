"""Tensors written as Python."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def literal(tensor: Tensor) -> str:
    """Python that makes the tensor."""
    dtype = (
        ""
        if tensor.dtype in (torch.float32, torch.int64, torch.bool)
        else f", dtype={tensor.dtype}"
    )
    if not tensor.numel():
        dtype = f", dtype={tensor.dtype}"
        return f"torch.empty({tuple(tensor.shape)}{dtype})"
    if tensor.numel() > 16 and bool((tensor == tensor.reshape(-1)[0]).all()):
        return f"torch.full({tuple(tensor.shape)}, {_number(tensor.reshape(-1)[0].item())}{dtype})"
    return f"torch.tensor({_nested(tensor.tolist())}{dtype})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return _number(value)


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"{value:.9g}" if isinstance(value, float) and value != int(value) else repr(value)
