"""Terms that are added to a loss and have no graph, though they depend on what is trained: they
move the number and train nothing."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from gradscope.facts import NoGradient
from gradscope.record.sizes.cuts import Cut
from gradscope.record.sizes.readouts import tells

_MOST_READ = 64
_DIGITS = 4  # of a weight as it is written: 0.1, 1e-3, 0.0025
_CUTS = frozenset((NoGradient.DETACH, NoGradient.NO_GRAD, NoGradient.NUMBER, NoGradient.REWRAPPED))


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
                read = (cut for number, cut in self._read if _is_multiple(term, number))
                yield from ((cut, cut.lost) for cut in list(read)[:1])
            elif is_term(term) and not term.requires_grad:
                yield from _lost_before(cuts_before(term))


def is_term(one: Any) -> bool:
    """Whether it is a single number, as a loss is."""
    return isinstance(one, torch.Tensor) and not one.dim() and one.is_floating_point()


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
