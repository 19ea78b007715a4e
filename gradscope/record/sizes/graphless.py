"""Values without a graph that a loss may have been meant to train through: gradients that were
handed out, samples, counts, what was to go straight through a choice, and terms that are added to a
loss: they move the number and train nothing. And those that are 0, which no gradient passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from gradscope.facts import NoGradient
from gradscope.ops.traits import Trait, has
from gradscope.record.events.provenance import storage_key
from gradscope.record.graph import node_name
from gradscope.record.oprun import flatten
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site, note_site
from gradscope.record.sizes.cuts import Cut, is_whole
from gradscope.record.sizes.leaves import has_memory
from gradscope.record.sizes.readouts import tells
from gradscope.record.tracing import unobserved

_MOST_READ = 64
_DIGITS = 4  # of a weight as it is written: 0.1, 1e-3, 0.0025
_CUTS = frozenset((NoGradient.DETACH, NoGradient.NO_GRAD, NoGradient.NUMBER, NoGradient.REWRAPPED))
_MOST_TERMS = 16  # nodes of one sum
_MOST_ZEROS = 4096  # memories


class Constant(NamedTuple):
    """A gradient that was handed out without its graph, or what a library computes without one, as
    it does a sample: it depends on the leaves `lost`. `asked` are the memories of the parameters
    that a gradient is by, or of what was made of them. `likely`: it was asked how likely a sample
    is, which trains what it was drawn from. `through` are the leaves of others that have computed
    with it, `frozen` the parameters, by id, that did so without a gradient, and `beyond` the
    memories of what these made. `sum`: the number of the node that adds it to others as a term."""

    cut: Cut
    lost: int
    asked: frozenset[int] = frozenset()
    drawn: int | None = None  # the memory of a sample
    likely: bool = False
    through: int = 0
    frozen: frozenset[int] = frozenset()
    beyond: frozenset[int | None] = frozenset()
    sum: int | None = None


class Constants:
    """Those of one forward pass, by the bit of their cut."""

    def __init__(self) -> None:
        self._found: dict[int, Constant] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def bits(self) -> int:
        return sum(self._found)

    def add(self, bit: int, one: Constant) -> None:
        self._found[bit] = one

    def found_in(self, bits: int) -> Iterator[Constant]:
        return (one for bit, one in self._found.items() if bits & bit)

    def intended(
        self,
        info: OpInfo,
        args: Sequence[torch.Tensor],
        out: Any,
        cuts: int,
        read: set[int],
        others: Sequence[tuple[int, int]],
        *,
        is_apart: bool,
    ) -> int:
        """The values without a graph that this op uses as nobody would one that is to be learnt
        from: gradients as weights of what they depend on, as a step away from what they are by, as
        features for a layer, or with the graph switched off; samples beside what they depend on, as
        a log-likelihood does; and both as a mask. `others` are the leaves and the cuts upstream of
        each operand."""
        found = 0
        is_beyond = info.name == "detach" or has(info.name, Trait.STEPS)
        is_beyond |= all(map(is_whole, flatten(out)))
        frozen = frozenset(map(id, filter(_is_frozen, map(_base, args))))
        multiplies = has(info.name, Trait.MULTIPLIES | Trait.DIVIDES)
        for bit, one in list(self._found.items()):
            if one.cut.reason is NoGradient.STRAIGHT_THROUGH:
                continue  # whatever is made of it
            given = [live for live, had in others if had & bit]
            if given and one.drawn is not None:
                through = one.through
                for live, _ in others:
                    through |= live & ~one.lost
                one = one._replace(through=through)
                if frozen or not one.beyond.isdisjoint(read):
                    made = map(storage_key, flatten(out))
                    one = one._replace(frozen=one.frozen | frozen, beyond=one.beyond.union(made))
                self._found[bit] = one
            # A term is added to others; a likelihood compares the sample itself, row by row.
            is_others = any(live & ~one.lost for live in given) or not one.beyond.isdisjoint(read)
            by_row = getattr(out, "ndim", 0) > 1 and not is_others
            reads = multiplies or (one.drawn is not None and (one.drawn in read or by_row))
            is_beside = reads and any(live & one.lost and not had & bit for live, had in others)
            if is_beside and cuts & bit and one.drawn is not None:
                self._found[bit] = one._replace(likely=True)
            is_intended = is_beside or is_beyond or not one.asked.isdisjoint(read)
            if is_intended or (is_apart and one.drawn is None):
                found |= bit
        return found


def passed_over(node: Any) -> Iterator[Any]:
    """The nodes of the terms of a sum that cancel: `z` in `z + (q - z)`, whose value is that of
    `q`. Nobody writes so but to have `z` get the gradient in the place of `q`."""
    waiting, terms = [(node, 1)], list[tuple[Any, int]]()
    while waiting and len(terms) + len(waiting) < _MOST_TERMS:
        one, sign = waiting.pop()
        name = node_name(one) if one is not None else ""
        if name not in ("AddBackward0", "SubBackward0") or one._saved_alpha != 1:
            terms += [(one, sign)] if one is not None else []
            continue
        signs = sign, sign if name == "AddBackward0" else -sign
        below = (below for below, _ in one.next_functions)
        waiting += zip(below, signs, strict=False)
    total = Counter[Any]()
    for one, sign in terms:
        total[one] += sign
    return (one for one, sign in total.items() if not sign)


class Terms:
    """Those of one forward pass."""

    def __init__(self) -> None:
        self._read: list[tuple[float, Cut]] = []

    def note_number(self, number: object, cut: Cut) -> None:
        """A value with a graph was read as a number of Python's."""
        if isinstance(number, float) and tells(number) and len(self._read) < _MOST_READ:
            self._read.append((number, cut))

    def without_graph(
        self, terms: Iterable[Any], cuts_before: Callable[[torch.Tensor], Sequence[Cut]]
    ) -> Iterator[tuple[Cut, int]]:
        """Of each of these that has none: the cut, and the leaves that it lost."""
        for term in terms:
            if isinstance(term, float):
                read = [cut for number, cut in self._read if _is_multiple(term, number)]
                # `b - b.item()` has the slope of b, and is 0.
                if read and not any(_is_itself(one, term) for one in terms):
                    yield read[-1], read[-1].lost
            elif is_term(term) and not term.requires_grad:
                yield from _lost_before(cuts_before(term))


def _base(one: torch.Tensor) -> torch.Tensor:
    """What it is a view of."""
    return one if one._base is None else one._base


def _is_frozen(one: torch.Tensor) -> bool:
    return isinstance(one, torch.nn.Parameter) and not one.requires_grad


def is_term(one: Any) -> bool:
    """Whether it is a single number, as a loss is."""
    return isinstance(one, torch.Tensor) and not one.dim() and one.is_floating_point()


def _is_itself(term: Any, number: float) -> bool:
    with unobserved():
        return is_term(term) and term.requires_grad and abs(float(term)) == abs(number)


def _lost_before(cuts: Sequence[Cut]) -> Iterator[tuple[Cut, int]]:
    """A term that says how often a comparison holds, or what was cut off where it was no term yet:
    who detaches a term itself knows that it trains nothing."""
    if any(one.reason is NoGradient.DETACH and one.of_term for one in cuts):
        return
    compared = [one for one in cuts if one.reason is NoGradient.INTEGER]
    others = [one for one in cuts if one.reason in _CUTS and not one.of_term]
    if compared:
        yield compared[-1], compared[-1].lost
    elif others:
        last, lost = others[-1], 0
        for one in others:
            lost |= one.lost if one.note.user == last.note.user else 0
        yield last, lost


def _is_multiple(term: float, number: float) -> bool:
    """Whether a number was multiplied by one that is short, as weights are written: so exactly, no
    other number is one."""
    weight = term / number
    short = float(f"{weight:.{_DIGITS}g}") if math.isfinite(weight) else 0.0
    return short != 0.0 and math.isclose(weight, short, rel_tol=1e-14)


def _is_zero(one: torch.Tensor) -> bool:
    """Whether it was 0 before this pass, and is no number of a class or a place."""
    return one.is_floating_point() and has_memory(one) and not one.any()


class Zeros:
    """Told of the ops of one forward pass, each with a frame inside of which it was called: which
    factors are 0 in all elements since a value without a graph is."""

    def __init__(self) -> None:
        self.factors: dict[
            int | None, Site
        ] = {}  # where one became 0, by the number of the product
        self._known: dict[int | None, Site] = {}  # likewise, by memory; of what began as 0 nowhere

    def note(self, info: OpInfo, args: Sequence[Any], out: Any, made: int, frame: Any) -> None:
        before = [self._known.get(storage_key(one), None) for one in flatten(args)]
        sites = [site for site in before if site]
        if made and sites and has(info.name, Trait.MULTIPLIES):
            self.factors[made - 1] = sites[0]
        for result in () if info.view else filter(has_memory, flatten(out)):
            key = storage_key(result)
            self._known.pop(key, None)
            if made and not sites:
                continue
            if len(self._known) < _MOST_ZEROS and result.numel() and not result.any():
                begins = info.fills or info.shape_only or all(map(_is_zero, flatten(args)))
                self._known[key] = sites[0] if sites else () if begins else note_site(frame)[0]
