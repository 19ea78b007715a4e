"""The leaves' gradients after a backward, small enough to keep and exact enough to compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch

from gradscope.facts import Gradient
from gradscope.record.finite import plain

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
    flat = values.reshape(-1)
    finite = torch.isfinite(flat)
    kept = flat.double() if bool(finite.all()) else flat[finite].double()
    count = min(flat.numel(), _SAMPLE)
    places = torch.arange(count, device=flat.device) * flat.numel() // max(count, 1)
    return Gradient(
        name=name,
        shape=tuple(values.shape),
        numel=flat.numel(),
        bad=int(flat.numel() - finite.sum().item()),
        norm=float(torch.linalg.vector_norm(kept).item()) if kept.numel() else 0.0,
        digest=_digest(flat),
        sample=tuple(flat[places].double().tolist()),
    )


def _digest(flat: torch.Tensor) -> str:
    raw = flat.contiguous().cpu().view(torch.uint8)
    content = raw.numpy().tobytes() if _has_numpy() else bytes(raw.tolist())
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _has_numpy() -> bool:
    """torch works without numpy, and so do we; slower."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True
