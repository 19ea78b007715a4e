"""Forwards that are there for their backward: where the two differ, they are meant to."""

import torch

from gradscope.record.probes.derivative import Sample
from gradscope.record.probes.relations import Evidence, rows

FLAT = 1e-4  # of the size of a step


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
