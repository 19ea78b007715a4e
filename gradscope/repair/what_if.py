"""A change of calls that is made while the program runs, where no patch can be written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change of the calls of an op at a line.

    `operand` and `kept` are Python over `x` (the operand), `torch`, and the other operands by
    schema name: what stands in for `argument` (nothing: all operands in a wider dtype), and where
    the result counts (elsewhere it keeps its value, without a gradient). The file `mark` is
    created once a call was changed.
    """

    op: str
    file: str
    line: int
    argument: str
    operand: str
    kept: str = ""
    same: bool = False  # claims that finite values stay as they are
    mark: str = ""
