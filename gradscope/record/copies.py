"""In-place ops whose derivative needs what they overwrite: `div_`, `log_`, `pow_`, `atan2_`, ...

Autograd first makes the op's node, then saves a `clone` of the operand that nobody wrote, which
may take a node and its sequence number too, and only then runs the op: the numbers of the op's
call were given out before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def numbers_taken(
    seq: int,
    written: Sequence[torch.Tensor],
    is_own_clone: Callable[[int], bool],
    is_noted: Callable[[int], bool],
) -> range:
    """The sequence numbers below `seq` (the counter) that belong to the call of an in-place op,
    the op's own nodes first. `is_own_clone` tells of a number whether a clone was noted under it
    that the same instruction called. Empty where there was none."""
    clones = 0
    while is_own_clone(seq - 1 - clones):
        clones += 1
    # A clone of what needs no gradient makes no node: its call was noted under the op's number.
    nodes = clones if any(tensor.requires_grad for tensor in written) else 0
    taken = range(seq - clones - nodes, seq)
    return taken if not any(map(is_noted, taken[:nodes])) else range(0)
