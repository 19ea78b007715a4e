"""The user's source: text, the expression at a span, the operands and the masks written there."""

from gradscope.source.masks import Mask, mask
from gradscope.source.operands import Names, find, operands
from gradscope.source.pointing import pointed
from gradscope.source.spans import expression, shown, statement
from gradscope.source.text import Source, SourceError, at, lines, parsed, read

__all__ = [
    "Mask",
    "Names",
    "Source",
    "SourceError",
    "at",
    "expression",
    "find",
    "lines",
    "mask",
    "operands",
    "parsed",
    "pointed",
    "read",
    "shown",
    "statement",
]
