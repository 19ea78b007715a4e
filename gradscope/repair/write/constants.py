"""Logarithms of what the source tells: of a number, of ones, and of the zeros of a recurrence."""

import ast
import math

from gradscope.repair.write.reading import Reading
from gradscope.source.arguments import Spelled, spelled


def settled(read: Reading, node: ast.expr) -> str | None:
    """The logarithm of a number above 0, or of ones."""
    if (number := read.number(node)) is not None:
        return f"{math.log(number)!r}" if number > 0 else None
    return zeros(read, spelled(read.culprit.source, node))


def zeros(read: Reading, found: Spelled) -> str | None:
    """The logarithm of ones."""
    if found.name not in ("ones", "ones_like") or not found.positional:
        return None
    given = ", ".join(filter(None, (read.text(found.positional[0]), read.rest(found))))
    return f"torch.{found.name.replace('ones', 'zeros')}({given})"


def far(dtype: str) -> str:
    """For minus the logarithm of 0, which has no slope in a recurrence: a number whose negative no
    sum of exponentials notices, and of which some can be added up."""
    return "1e4" if dtype == "float16" else "1e30"
