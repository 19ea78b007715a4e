"""The leaves' gradients after a backward, small enough to keep and exact enough to compare."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch

from gradscope.facts import Gradient
from gradscope.record.finite import looks_finite, plain
from gradscope.record.pieces import pieces

_SAMPLE = 1024  # values kept a gradient: enough to say by how much a fix moved it
_MOST = 2_000  # leaves described


def describe_gradients(leaves: Iterable[tuple[str, torch.Tensor]]) -> tuple[Gradient, ...]:
    """One fact for each leaf that has a gradient."""
    found: list[Gradient] = []
    for name, leaf in leaves:
        if leaf.grad is None or len(found) >= _MOST:
            continue
        values = plain(leaf.grad)
        if values is not None:
            found.append(_describe(name, values.detach()))
    return tuple(found)


def _describe(name: str, values: torch.Tensor) -> Gradient:
    digest = hashlib.blake2b(digest_size=16)
    bad, norm = 0, 0.0
    for piece in pieces(values):
        kept = piece if looks_finite(piece) else piece[torch.isfinite(piece)]
        bad += piece.numel() - kept.numel()
        norm = math.hypot(norm, torch.linalg.vector_norm(kept, dtype=torch.float64).item())
        digest.update(_content(piece))
    return Gradient(
        name=name,
        shape=tuple(values.shape),
        numel=values.numel(),
        bad=bad,
        norm=norm,
        digest=digest.hexdigest(),
        sample=_sample(values.reshape(1) if values.dim() == 0 else values),
    )


def _sample(values: torch.Tensor) -> tuple[float, ...]:
    """Values at even distances, in row-major order."""
    count = min(values.numel(), _SAMPLE)
    if not count:
        return ()
    places = torch.arange(count, device=values.device) * values.numel() // count
    index = []
    for size in reversed(values.shape):  # `torch.unravel_index` would import sympy: 0.3 s
        index.append(places % size)
        places = places // size
    return tuple(values[tuple(reversed(index))].double().tolist())


def _content(piece: torch.Tensor) -> Any:
    own = piece.reshape(-1).clone(memory_format=torch.contiguous_format)  # with strides of its own
    raw = own.cpu().view(torch.uint8)
    return raw.numpy() if _has_numpy() else bytes(raw.tolist())


def _has_numpy() -> bool:
    """torch works without numpy, and so do we; slower."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True
