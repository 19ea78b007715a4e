"""Whether a step moves parameters in half precision, or is rounded away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gradscope.facts import Movement
from gradscope.record.optimizers import parameters_of

_MOST = 64  # parameters of an optimizer that are looked at
_ELEMENTS = 1024  # of each of them, at even distances
_HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class _Part:
    parameter: torch.Tensor
    values: torch.Tensor
    pulled: torch.Tensor  # whose gradient is not 0


Before = list[_Part]


def begin_movement(optimizer: Any) -> Before | None:
    """The values before a step; None where nothing that it holds is in half precision."""
    held = [one for one in parameters_of(optimizer) if _can_be_read(one)]
    every = max(1, len(held) // _MOST)
    parts = [
        _Part(one, _sample(one).clone(), _sample(one.grad).ne(0))
        for one in held[::every]
        if one.grad is not None and _can_be_read(one.grad)
    ]
    return parts or None


def end_movement(before: Before, step: int, lr: float, names: Mapping[int, str]) -> Movement | None:
    """What the step after a pass has changed of them; None where no gradient was other than 0."""
    counts = [int(part.pulled.count_nonzero()) for part in before]
    still = [int((part.values.eq(_sample(part.parameter)) & part.pulled).sum()) for part in before]
    if not sum(counts):
        return None
    worst = before[max(range(len(before)), key=still.__getitem__)]
    return Movement(
        step=step,
        lr=lr,
        pulled=sum(counts),
        still=sum(still),
        leaf=names.get(id(worst.parameter), "a parameter"),
        dtype=str(worst.parameter.dtype).removeprefix("torch."),
        scale=float(worst.values.float().abs().mean()),
    )


def _can_be_read(one: torch.Tensor) -> bool:
    plain = type(one) in (torch.Tensor, torch.nn.Parameter) and one.layout is torch.strided
    return (
        plain
        and one.dtype in _HALF
        and not one.is_meta
        and one.is_contiguous()
        and bool(one.numel())
    )


def _sample(one: torch.Tensor) -> torch.Tensor:
    return one.detach().view(-1)[:: -(-one.numel() // _ELEMENTS)]
