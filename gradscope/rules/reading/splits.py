"""Whether the groups of an optimizer are a split of what is to be trained, and whether one that was
made has not been given to it."""

from collections import defaultdict
from collections.abc import Sequence

from gradscope.facts import Magnitudes, Usage

_MANY = 2  # modules that are held, for each that is left out


def is_split(usage: Usage, others: Sequence[str], magnitudes: Magnitudes) -> bool:
    """Whether groups of another weight decay each part the parameters by what they are, and have
    no place for some of the `others`, which no optimizer holds.

    Who trains a head alone, or biases and a head, chooses by the layer. So the parameters of some
    module have to be in two groups; and those left out lie in modules that the optimizer holds a
    part of, beside the weights of more modules than these, or of another kind: matrices and no
    kernels of a convolution. Or they are all of few modules, as embeddings are, beside many.
    """
    leaves = {leaf.name: leaf for leaf in magnitudes.leaves if leaf.owner}
    decays = defaultdict[str, set[float]](set)  # of the parameters of each module
    for group in usage.groups:
        for name in leaves.keys() & {*group.held}:
            decays[leaves[name].owner].add(group.weight_decay)
    halves = decays.keys() & {leaves[name].owner for name in leaves.keys() & {*others}}
    others = [name for name in others if name in leaves]
    left = [leaves[name] for name in others if leaves[name].owner in halves]
    held = [leaf for leaf in leaves.values() if leaf.owner in decays and len(leaf.shape) > 1]
    held = [leaf for leaf in held if leaf.name not in others and leaf.owner not in halves]
    kinds = {len(leaf.shape) for leaf in left}
    is_another = len(kinds) == 1 and kinds.isdisjoint(len(leaf.shape) for leaf in held)
    are_more = len({leaf.owner for leaf in held}) > len(halves)
    are_parted = any(len(both) > 1 for both in decays.values())
    are_few = not halves and _MANY * len({leaves[name].owner for name in others}) < len(decays)
    are_halves = bool(halves and held) and (is_another or are_more)
    return are_parted and (are_few or are_halves)


def collected(usage: Usage, others: Sequence[str]) -> str:
    """The list of all of these, by the expression that reaches it, which the function that makes
    the optimizer has collected: that is to give them to one. Empty where it has none."""
    holders = usage.scopes[0].holders if usage.scopes else ()
    lists = defaultdict[str, set[str]](set)
    for one in holders:
        if one.bare and one.text.endswith("]"):
            lists[one.text.rpartition("[")[0]].update(one.leaves)
    return next((text for text, leaves in lists.items() if leaves == {*others}), "")
