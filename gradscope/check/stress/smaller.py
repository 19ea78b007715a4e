"""Inputs cut to the fewest elements that still break a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor

from gradscope.check.stress.variants import Values, sliced


def smaller(
    values: Values,
    given: Values,
    breaks: Callable[[Values], bool],
    works: Callable[[Values], bool],
) -> Values:
    """Cut each size that occurs, everywhere at once, as long as the inputs still break.

    A cut that breaks the given inputs as well would show something else: a loss over nothing.
    """
    alike = _shapes(values) == _shapes(given)
    while True:
        for size, count, first_only in _cuts(values):
            cut = sliced(values, size, count, first_only=first_only)
            beside = sliced(given, size, count, first_only=first_only)
            changed = _shapes(cut) != _shapes(values)
            if changed and breaks(cut) and (not alike or works(beside)):
                values, given = cut, beside
                break
        else:
            return values


def _cuts(values: Values) -> Iterator[tuple[int, int, bool]]:
    """A size, what to cut it to, and whether in the first dimension alone; the boldest first.

    Where a score is -inf only the first: in a row of one, it would hide all that there is.
    """
    masked = any(
        isinstance(one, Tensor) and bool((one == -math.inf).any()) for one in values.values()
    )
    sizes = {size for value in values.values() if isinstance(value, Tensor) for size in value.shape}
    for size in sorted(sizes, reverse=True):
        for count in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < count < size:
                yield size, count, True
                if not masked:
                    yield size, count, False


def _shapes(values: Values) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in values.values() if isinstance(value, Tensor)]
