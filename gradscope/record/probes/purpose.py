"""Forwards that are there for their backward: where the two differ, they are meant to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gradscope.record.probes.derivative import Sample
from gradscope.record.probes.relations import Evidence, rows, wrong_at

FLAT = 1e-4  # of the size of a step
_MOST_KEPT = 32  # tensors that a forward makes
_FEW = 4  # elements for each value of a tensor that holds few


def is_identity(sample: Sample) -> bool:
    """The forward passes an input on as it is: it was written for its backward."""
    values, slope = sample.base.values, sample.slope
    return any(
        torch.equal(x.reshape(-1), values)
        and torch.allclose(slope.values, along.reshape(-1).double(), rtol=1e-3)
        for x, along in zip(sample.point, slope.direction, strict=True)
    )


def rounds(sample: Sample, place: int, evidence: Evidence) -> bool:
    """Whether the forward is a step function of each element, at a scale that all of them give
    together (their largest, their mean size), and backward hands the gradient on where it stands:
    the slope of the scale is left out on purpose."""
    x, handed = sample.point[place], rows(evidence.got)
    if x.numel() != sample.base.values.numel() or sample.calls.left < 2:
        return False
    cotangents = evidence.cotangents.to(handed)
    if not bool(((handed == cotangents) | (handed == 0)).all()) or not bool(handed.any()):
        return False
    # A step that leaves the scale as it is, of the whole or of each row.
    along = [torch.zeros_like(one) for one in sample.point]
    kept = torch.ones_like(x, dtype=torch.bool)
    for value in (x, x.abs()):
        kept &= (value < value.amax(-1, keepdim=True)) & (value > value.amin(-1, keepdim=True))
    means = torch.stack([one[kept] for one in (torch.ones_like(x), x.sign(), x)], 1).double()
    start = sample.slope.direction[place][kept].double()
    if len(start) <= 2 * means.shape[1]:
        return False
    basis = torch.linalg.qr(means).Q
    along[place][kept] = (start - basis @ (basis.T @ start)).to(x.dtype)
    slope = sample.slope_along(along)
    return bool((slope.values.abs() <= FLAT * along[place].abs().max()).all())


class _Results(TorchFunctionMode):
    """Keeps the tensors of a shape that functions of torch give, and that have a graph."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self._shape, self.found = shape, list[Tensor]()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and len(self.found) < _MOST_KEPT:
            if out.shape == self._shape and out.requires_grad:
                self.found.append(out)
        return out


def passes_through(sample: Sample, place: int, evidence: Evidence) -> bool:
    """Whether backward gives the gradient of a tensor of few values that forward makes of the
    input, as if the input were that: how it is rounded, and to which scale, is left out on
    purpose, as in a layer with ternary weights."""
    x, results = sample.point[place], _Results(sample.point[place].shape)
    if not sample.calls.left:
        return False
    tape = sample.calls.taped(sample.point, sample.base, results)
    for made in results.found if tape is not None else ():
        if tape is None or made.detach().unique().numel() * _FEW > x.numel():
            continue
        handed = torch.stack([tape(one, (made,))[0] for one in sample.cotangents[:2]])
        if not bool(wrong_at(evidence.got, handed.to(evidence.got), evidence.tolerance).any()):
            return True
    return False
