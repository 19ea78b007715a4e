"""How near the matrices of decompositions and inverses came to degenerate ones."""

from __future__ import annotations

import torch

from gradscope.facts import Approach, Call, DistanceOf, NotChecked, plural
from gradscope.ops.edges import Decomposition
from gradscope.ops.names import spelled
from gradscope.ops.reach import reach_of_matrix
from gradscope.record.finite import plain
from gradscope.record.oprun import OpRun, flatten

_LARGEST = 256  # the order of a matrix whose singular values are computed beside the program's
_MOST = 1024  # matrices in a batch


def of_matrix(op: OpRun, wanted: Decomposition, step: int) -> Approach | NotChecked | None:
    """The matrix nearest to a singular one, or with the two nearest eigenvalues, if too near."""
    operand = dict(op.inputs()).get(wanted.argument)
    tensor = plain(operand) if operand is not None and operand.requires_grad else None
    if tensor is None or not tensor.numel() or tensor.is_meta:
        return None
    order = min(tensor.shape[-2:])
    matrices = tensor.shape[:-2].numel()
    if order < 2:
        return None
    if order > _LARGEST or matrices > _MOST:
        size = f"{plural(matrices, 'matrix', 'matrices')} of order {order}"
        return NotChecked(
            f"how near to singular the operand of `{spelled(op.info.name)}` is",
            f"{size}; at most {_MOST:,} of order {_LARGEST} are looked at",
        )
    if wanted.values is None:
        measured, distances = DistanceOf.MATRIX, _from_singular(tensor)
    else:
        measured, distances = DistanceOf.VALUES, _gaps(flatten(op.out)[wanted.values])
    dtype = str(tensor.dtype).removeprefix("torch.")
    within = reach_of_matrix(dtype, order)
    # At 0 it has broken, or is hidden: there are other rules for both.
    distances = torch.where(distances > 0, distances, torch.inf)
    nearest = distances.min().item()
    if not nearest < within:
        return None
    return Approach(
        call=Call(""),
        step=step,
        role=wanted.argument,
        dtype=dtype,
        point=0.0,
        value=nearest,
        distance=nearest,
        reach=within,
        near=int((distances < within).sum()),
        numel=matrices,
        measured=measured,
    )


def _from_singular(tensor: torch.Tensor) -> torch.Tensor:
    """The smallest singular value of each matrix, relative to the largest: 1 / condition."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    values = torch.linalg.svdvals(tensor.detach().to(wide))
    relative: torch.Tensor = values[..., -1] / values[..., 0]
    return relative


def _gaps(values: torch.Tensor) -> torch.Tensor:
    """The smallest distance of two values of each matrix, relative to the largest magnitude."""
    values = values.detach().to(torch.complex128 if values.is_complex() else torch.float64)
    gaps = (values[..., None] - values[..., None, :]).abs()
    gaps.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    nearest: torch.Tensor = gaps.amin((-2, -1))
    return nearest / values.abs().amax(-1)
