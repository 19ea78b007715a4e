"""What a gradient of the wrong shape is: that of another input, transposed, or not summed."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from gradscope.facts import Relation


def exchanged(raw: list[Any], right: list[Tensor], places: list[int]) -> dict[int, int]:
    """The first two inputs of different shapes that have each other's gradient."""

    def is_that_of(one: int, other: int) -> bool:
        found, needed = raw[one], right[other]
        return isinstance(found, Tensor) and _is_close(found.double(), needed)

    for one, other in combinations(places if right else (), 2):
        if is_that_of(one, other) and is_that_of(other, one):
            return {one: other, other: one}
    return {}


def _is_close(found: Tensor, right: Tensor) -> bool:
    return found.shape == right.shape and torch.allclose(found, right, rtol=1e-4, atol=1e-8)


def reshaped(returned: Tensor, right: Tensor) -> Relation | None:
    """A gradient of the broadcast shape, or of the transposed one."""
    for count in range(1, returned.ndim + 1):
        for dims in combinations(range(returned.ndim), count):
            if _is_close(returned.sum(dims), right):
                return Relation(("unsummed",), None, str(dims[0] if len(dims) == 1 else dims))
    # Of a forward that is flat, as of a sign, no value tells what is right; the shape does.
    is_flat = returned.shape[::-1] == right.shape and not right.any()
    is_transposed = returned.ndim == 2 and (is_flat or _is_close(returned.T, right))
    return Relation(("transposed",)) if is_transposed else None
