"""Where NumPy has warned of a NaN or an inf that the program made of finite numbers."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gradscope.facts import ArrayFault, Location, Trouble
from gradscope.record.definitions import source_of
from gradscope.record.sites import USER, kind_of_file, shown_path
from gradscope.source import Source
from gradscope.source.text import characters
from gradscope.source.tree import covers

_MOST = 8
# What a ufunc says of arrays; of a single number, as a metric is, it says "in scalar divide".
_TOLD = re.compile(r"(invalid value|divide by zero|overflow) encountered in (\w+)$")
_NAN = "invalid value"
_WRITTEN = {"divide": ast.Div, "true_divide": ast.Div, "power": ast.Pow, "multiply": ast.Mult}


def array_faults(called_from: Iterable[Mapping[str, Any]]) -> tuple[ArrayFault, ...]:
    """Python keeps what it has warned of, by line, among the variables of each module: of these,
    and of all that are imported."""
    imported = [getattr(one, "__dict__", {}) for one in list(sys.modules.values())]
    modules = {id(one): one for one in (*called_from, *imported)}
    found: list[ArrayFault] = []
    for held in modules.values():
        registry, file = held.get("__warningregistry__"), held.get("__file__")
        if registry and isinstance(file, str) and kind_of_file(file) == USER:
            found += _of(registry, file)
    return tuple(found[:_MOST])


def _of(registry: Mapping[object, object], file: str) -> Iterator[ArrayFault]:
    source = source_of(file)
    for key in registry:
        if isinstance(key, tuple) and len(key) == 3 and key[1] is RuntimeWarning:
            told, line = _TOLD.match(str(key[0])), key[2]
            if told is not None:
                place = _place(source, line, told[2]) if source is not None else None
                yield ArrayFault(told[2], Trouble.NAN if told[1] == _NAN else Trouble.INF, place)


def _place(source: Source, line: int, op: str) -> Location | None:
    """The one expression on a line that may be the op, else the statement."""
    kind = _WRITTEN.get(op)
    nodes = [one for one in ast.walk(source.tree) if isinstance(one, ast.expr | ast.stmt)]
    here = [one for one in nodes if covers(one, line)]
    ops = [one for one in here if isinstance(getattr(one, "op", None), kind or ())]
    statements = [one for one in here if isinstance(one, ast.stmt)]
    if not statements:
        return None
    node = ops[0] if len(ops) == 1 else statements[-1]
    assert node.end_lineno is not None and node.end_col_offset is not None
    function = source.nodes.function(node)
    return Location(
        file=shown_path(source.file),
        line=node.lineno,
        col=characters(source.line(node.lineno), node.col_offset),
        end_line=node.end_lineno,
        end_col=characters(source.line(node.end_lineno), node.end_col_offset),
        function=getattr(function, "name", "<module>"),
    )
