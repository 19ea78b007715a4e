"""The user's source: text, the expression at a span, the operands and the masks written there."""

from gradscope.source.arguments import find, operands
from gradscope.source.conditions import Mask, counts, mask
from gradscope.source.meaning import binding, definition, holds
from gradscope.source.spans import expression, pointed, shown
from gradscope.source.text import Source, SourceError, at, lines, parsed, read
from gradscope.source.tree import Names

__all__ = [
    "Mask",
    "Names",
    "Source",
    "SourceError",
    "at",
    "binding",
    "counts",
    "definition",
    "expression",
    "find",
    "holds",
    "lines",
    "mask",
    "operands",
    "parsed",
    "pointed",
    "read",
    "shown",
]
