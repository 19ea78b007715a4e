"""Large tensors are looked at a piece at a time, so that no question needs memory of their size."""

import math
from collections.abc import Iterator

import torch

_ELEMENTS = 2**22  # in a piece
_HALF = (torch.float16, torch.bfloat16)


def pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """All elements in row-major order, as views: whole rows along dimension 0, or parts of one.
    Tensors of one shape come in pieces of the same shapes."""
    if tensor.numel() <= _ELEMENTS:
        yield tensor
        return
    row = tensor.numel() // tensor.shape[0]
    if row <= _ELEMENTS:
        yield from tensor.split(_ELEMENTS // row)
        return
    for part in tensor.unbind():
        yield from pieces(part)


def sum_as(tensor: torch.Tensor, dtype: torch.dtype) -> float:
    """The sum of all elements, added up in `dtype`: torch would copy all of them to it first. No
    tensor is held from one piece to the next, which would keep the memory between them."""
    return sum(float(piece.sum(dtype=dtype).item()) for piece in pieces(tensor))


def norm_of(values: torch.Tensor) -> float:
    """The L2 norm in float64: squares neither overflow nor vanish. NaN and inf stay."""
    norms = (_norm_of(piece) for piece in pieces(values))
    return math.hypot(*norms) if values.numel() > _ELEMENTS else next(norms)


def _norm_of(values: torch.Tensor) -> float:
    fast = torch.float32 if values.dtype in _HALF else values.dtype
    norm = float(torch.linalg.vector_norm(values, dtype=fast).item())
    if 1e-15 < norm < 1e15 or norm != norm:
        return norm
    return float(torch.linalg.vector_norm(values, dtype=torch.float64).item())
