"""A backward that is right but for a tensor that forward has saved in the place of another."""

from collections.abc import Iterator

import torch
from torch import Tensor

from gradscope.facts import Relation, SavedInstead
from gradscope.record.probes.blame import named
from gradscope.record.probes.calls import Copied
from gradscope.record.probes.derivative import OUTPUT, Sample, Truth
from gradscope.record.probes.relations import wrong_at


def saved_wrongly(sample: Sample, place: int, truth: Truth) -> Relation | None:
    """Backward with another tensor in the place of one that it had saved: if that gives the
    right gradient, the wrong one was saved."""
    if truth.whole:
        return None
    known, right = sample.tensors(), truth.right[place][0]
    for index, saved in enumerate(sample.base.node.saved_tensors):
        if not isinstance(saved, Tensor) or not saved.is_floating_point():
            continue
        for name, tensor in _substitutes(saved, known):
            if not sample.calls.left:
                return None
            ctx = Copied(sample.base.node, {index: tensor.to(saved.dtype)})
            try:
                raw = sample.calls.backward(sample.base, sample.cotangents[0], ctx)[place]
            except Exception:
                continue
            if raw is not None and sample.fits(place, raw):
                found = sample.adapted(place, raw)
                if not bool(wrong_at(found, right, truth.tolerance, truth.noise).any()):
                    was = named(known, saved) or f"saved_tensors[{index}]"
                    return Relation(("saved",), None, SavedInstead(was, name, name == OUTPUT))
    return None


def _substitutes(saved: Tensor, known: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, one in sorted(known.items(), key=lambda pair: pair[0] != OUTPUT):
        if one.shape == saved.shape and not torch.equal(one, saved.to(one.dtype)):
            yield name, one
    if saved.ndim == 2 and saved.shape[0] == saved.shape[1] > 1:
        yield "its transpose", saved.mT
