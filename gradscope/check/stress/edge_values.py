"""What edges a single tensor is given: pure patterns, each with the words for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

HUGE = 1e4  # its square fits float32, its exponential does not
LARGE = 100.0  # its exponential does not fit float32
SATURATED = 20.0  # a sigmoid of it is 1 in float32
TINY = (1e-12, 1e-25)  # the square of the second is 0 in float32
Patterns = Iterator[tuple[str, Tensor]]


def of_float(tensor: Tensor) -> Patterns:
    if not tensor.numel():
        return
    finite = tensor[torch.isfinite(tensor)]
    signed = bool((finite < 0).any())
    unit = not signed and bool((finite <= 1).all())
    yield "zeros", torch.zeros_like(tensor)
    yield "ones", torch.ones_like(tensor)
    if tensor.dim():
        yield "one zero", with_value(tensor, first_of(tensor), 0.0)
        yield "one 1", with_value(tensor, first_of(tensor), 1.0)
        yield "a row of zeros", with_value(tensor, 0, 0.0)
        yield "equal elements", tensor.reshape(-1)[0].expand_as(tensor).clone()
        yield "one-hot values", with_value(torch.zeros_like(tensor), first_of(tensor), 1.0)
        if tensor.dim() > 1:
            yield "one-hot rows", one_hot(tensor)
            yield "equal rows", tensor[:1].expand_as(tensor).clone()
            yield "a constant row", with_value(tensor, 0, tensor[0].reshape(-1)[0])
        if tensor.shape[0] > 1:
            yield "two equal rows", with_value(tensor, 1, tensor[0])
        if tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]:
            yield "the identity", torch.eye(tensor.shape[0]).to(tensor)
        if tensor.dim() > 2 and tensor.shape[-1] == tensor.shape[-2]:
            yield "identities", torch.eye(tensor.shape[-1]).to(tensor).expand_as(tensor).clone()
    if signed:
        yield "minus ones", -torch.ones_like(tensor)
        yield "positive values", tensor.abs()
        yield "negative values", -tensor.abs()
    for scale in TINY:
        yield f"values scaled by {scale:g}", tensor * scale
    if not unit:
        yield from _large(tensor, signed)


def _large(tensor: Tensor, signed: bool) -> Patterns:
    yield f"values scaled by {HUGE:g}", tensor * HUGE
    for size in (SATURATED, LARGE):
        yield f"values of {size:g}", torch.full_like(tensor, size)
        if signed:
            yield f"values of {-size:g}", torch.full_like(tensor, -size)
    if tensor.dim():
        yield "one large value", with_value(tensor, first_of(tensor), 2 * LARGE)


def of_mask(mask: Tensor, hidden: Any, shown: Any) -> Patterns:
    """Masks that hide all, nothing, or one whole row, in the two values that the mask has."""
    yield f"all {hidden}", torch.full_like(mask, hidden)
    yield f"all {shown}", torch.full_like(mask, shown)
    if mask.dim() > 1 and mask.numel():
        yield f"a row of {hidden}", with_value(mask, 0, hidden)
        yield f"a row of {shown}", with_value(mask, 0, shown)


def of_whole(tensor: Tensor) -> Patterns:
    """Whole numbers are often indices, labels or lengths: only such as were given, and 0."""
    yield "zeros", torch.zeros_like(tensor)
    yield "the smallest alone", torch.full_like(tensor, int(tensor.min()))
    yield "the largest alone", torch.full_like(tensor, int(tensor.max()))
    if tensor.dim():
        yield "one zero", with_value(tensor, first_of(tensor), 0)


def first_of(tensor: Tensor) -> tuple[int, ...]:
    return (0,) * tensor.dim()


def with_value(tensor: Tensor, index: Any, value: Any) -> Tensor:
    made = tensor.clone()
    made[index] = value
    return made


def one_hot(tensor: Tensor) -> Tensor:
    made = torch.zeros_like(tensor)
    made[..., 0] = 1
    return made
