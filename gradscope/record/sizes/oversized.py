"""What a loss compares at the first step that is far larger than its targets, or spreads far wider
than logits do, and by how much each product on the way has made it larger."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gradscope.facts import Gain, Oversized
from gradscope.record.context import RunContext
from gradscope.record.finite import rms_of
from gradscope.record.graph import dim_of, node_name, saved, shape_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sizes.crossings import Activations
from gradscope.record.sizes.growth import longest_chain
from gradscope.record.sizes.inspection import Inspected

_FEWEST = 3  # products
_POWERS = {"MseLossBackward0": 2, "SmoothL1LossBackward0": 1, "HuberLossBackward0": 1}
_NORMALISES = "LogSoftmaxBackward0"
_OF_CHANCES = "BinaryCrossEntropyWithLogitsBackward0"
_DIVIDES = "DivBackward0"  # by a spread, in a Gaussian likelihood that is written out
# What each input of a product is called where its node saves it; a bias it does not.
_PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "AddmmBackward0": ("", "mat1", "mat2"),
    "MmBackward0": ("self", "mat2"),
    "MvBackward0": ("self", "vec"),
    "BmmBackward0": ("self", "mat2"),
    "BaddbmmBackward0": ("", "batch1", "batch2"),
    "ConvolutionBackward0": ("input", "weight"),
}


class _Compared(NamedTuple):
    """By the sequence numbers of their nodes, a loss, or the difference in it, and what it was
    `given`; the size of its targets, None where the forward pass has noted that, and the power in
    which the loss grows."""

    taken: int
    given: int
    wanted: float | None
    power: int
    classes: int = 0


class FirstSizes:
    """Asked around the first backward pass alone."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.found: Oversized | None = None
        self._compared: list[_Compared] = []
        self._data: dict[int, float] = {}  # sizes of what products read that has no graph

    def before_backward(self, one: BackwardPass) -> None:
        """What is told by tensors that the pass frees."""
        self._compared = [found for node in one.above for found in _comparisons(node, one)]
        self._data = {}
        for node in one.above if self._compared else ():
            for role, (made, _) in zip(
                _PRODUCTS.get(node_name(node), ()), node.next_functions, strict=False
            ):
                if role and made is None and (data := saved(node, role)) is not None:
                    self._data[_seq(node)] = rms_of(data)

    def after_backward(self, seen: Inspected, targets: Activations) -> None:
        """`targets` are of what was subtracted without a graph."""
        at = {one.seq: position for position, one in enumerate(seen.nodes)}
        noted = targets.read() if self._compared else {}
        for one in self._compared:
            known = noted.get(one.taken)
            wanted = one.wanted if one.wanted is not None else known.rms if known else 0.0
            if wanted and one.given in at and one.taken in at:
                self._note(one, wanted, at, seen)
        self._compared, self._data = [], {}

    def _note(self, one: _Compared, wanted: float, at: Mapping[int, int], seen: Inspected) -> None:
        chain = longest_chain(seen.nodes, at[one.given])
        known = (seen.activations.get(seen.nodes[position].seq) for position in chain)
        given = next((size.rms for size in known if size is not None), 0.0)
        gains = tuple(self._gains(seen, chain))
        found = self.found
        is_worst = found is None or given / wanted > found.given / found.wanted
        if len(gains) >= _FEWEST and is_worst and math.isfinite(given):
            nodes = tuple(sorted({seen.nodes[position].name for position in chain}))
            taken = seen.nodes[at[one.taken]].call
            self.found = Oversized(
                taken, seen.step, given, wanted, one.power, one.classes, gains, nodes
            )

    def _gains(self, seen: Inspected, chain: Sequence[int]) -> Iterator[Gain]:
        """Of each product, the first one first, over what the one before it has made."""
        context, before, below = self._context, 0.0, -1
        for position in reversed(chain):
            one, under = seen.nodes[position], below
            below = position
            size = seen.activations.get(one.seq)
            if one.name not in _PRODUCTS or size is None:
                continue
            before = before or self._data.get(one.seq, 0.0)
            if before:
                leaf, computed = _weight(seen, position, under)
                weight = seen.crossings.variables[leaf] if leaf is not None else None
                made = context.built.filled_at(weight) if weight is not None else None
                is_left = one.below.get(_left(one.name), under) != under
                yield Gain(one.call, size.rms / before, made, computed, is_left, leaf)
            before = size.rms


def _comparisons(node: Any, one: BackwardPass) -> Iterator[_Compared]:
    name, given = node_name(node), [made for made, _ in node.next_functions]
    if name in _POWERS and given[0] is not None and given[1] is None:
        target = saved(node, "target")
        if target is not None and target.numel():
            yield _Compared(_seq(node), _seq(given[0]), rms_of(target), _POWERS[name])
    elif name == _NORMALISES and given[0] is not None:
        classes = shape_of(node)[dim_of(node)]
        yield _Compared(_seq(node), _seq(given[0]), math.log(max(classes, 2)), 1, classes)
    elif name == _OF_CHANCES and given[0] is not None:
        yield _Compared(_seq(node), _seq(given[0]), math.log(2), 1, 2)
    elif name == "SubBackward0" and len(predicted := [*filter(None, given)]) == 1:
        users = one.above[node]
        if len(users) == 1 and node_name(users[0]) == _DIVIDES:
            users = one.above[users[0]]
        power = max(map(_power, users), default=0)
        if power:
            yield _Compared(_seq(node), _seq(predicted[0]), None, power)


def _power(node: Any) -> int:
    """In which a node takes what it is given: 0 where it is not as an error of either sign."""
    name, given = node_name(node), [made for made, _ in node.next_functions]
    if name == "MulBackward0":
        return 2 if given[0] is given[-1] else 0
    return {"PowBackward0": 2, "AbsBackward0": 1}.get(name, 0)


def _weight(seen: Inspected, position: int, below: int) -> tuple[int | None, bool]:
    """The matrix nearest to what a product multiplies the result of another node with, by its
    position among the leaves, and whether another product lies between."""
    one = seen.nodes[position]
    leaves, waiting = [*one.leaves.values()], [at for at in one.below.values() if at != below]
    computed = False
    while True:
        for leaf in leaves:
            if seen.crossings.variables[leaf].dim() > 1:
                return leaf, computed
        if not waiting:
            return None, computed
        one = seen.nodes[waiting.pop(0)]
        computed = computed or one.name in _PRODUCTS
        leaves = [*one.leaves.values()]
        waiting += one.below.values()


def _left(name: str) -> int:
    """Which input of a product is its first operand."""
    return 0 if _PRODUCTS[name][0] else 1


def _seq(node: Any) -> int:
    return int(node._sequence_nr())
