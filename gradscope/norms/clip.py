"""The arithmetic of `torch.nn.utils.clip_grad_norm_`, without touching the gradients.

Every result has the bits that torch's own would have: the same reductions in the same order.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gradscope.norms.facts import TORCH_EPS
from gradscope.record.census import census
from gradscope.record.finite import pieces


def total_norm(
    grads: Sequence[Tensor], norm_type: float = 2.0, foreach: bool | None = None
) -> Tensor:
    """The norm of all gradients as one vector: 0-d, of the dtype and device that torch gives it.

    Sparse gradients count with their coalesced values; torch's own function raises on them.
    """
    taken = [grad if grad.layout is torch.strided else dense(grad) for grad in grads]
    return torch.nn.utils.get_total_norm(taken, norm_type, foreach=foreach)


def coefficient(total: Tensor, max_norm: float) -> Tensor:
    """What the gradients would be multiplied by: at most 1; NaN where the total is."""
    return torch.clamp(float(max_norm) / (total + TORCH_EPS), max=1.0)


def clipped(grads: Sequence[Tensor], scale: Tensor) -> list[Tensor]:
    """Copies of the gradients, clipped."""
    return [grad.clone().mul_(scale.to(grad.device)) for grad in grads]


def exact_norm(grads: Sequence[Tensor], norm_type: float = 2.0) -> float:
    """The total over the finite elements in float64, where the squares of float32 still fit."""
    norms = [exact_one(grad, norm_type) for grad in grads]
    if not norms:
        return 0.0
    stacked = torch.tensor(norms, dtype=torch.float64)
    return float(torch.linalg.vector_norm(stacked, norm_type).item())


def exact_one(grad: Tensor, norm_type: float = 2.0) -> float:
    """The norm of the finite elements in float64, scaled by the largest so that no power of it
    overflows."""
    values = dense(grad)
    largest = census(values).largest
    if not largest:
        return 0.0
    norms = []
    for piece in pieces(values):
        scaled = piece[torch.isfinite(piece)].double() / largest
        norms.append(torch.linalg.vector_norm(scaled, norm_type).item())
    if norm_type == 0:  # a count, of which there is no norm
        return largest * float(sum(norms))
    together = torch.tensor(norms, dtype=torch.float64)
    return largest * float(torch.linalg.vector_norm(together, norm_type).item())


def dense(grad: Tensor) -> Tensor:
    """The values that a gradient holds, complex ones as pairs, a sparse one's duplicates summed."""
    grad = grad.detach()
    if grad.layout is torch.sparse_coo:
        grad = grad.coalesce().values()
    elif grad.layout is not torch.strided:
        grad = grad.values()
    return torch.view_as_real(grad.resolve_conj()) if grad.is_complex() else grad
