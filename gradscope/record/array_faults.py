"""Where NumPy has warned of a NaN or an inf that the program made of finite numbers."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from gradscope.facts import ArrayFault, Event, Kind, Location, Trouble
from gradscope.record.definitions import source_of, span_in
from gradscope.record.sites import USER, kind_of_file, shown_path
from gradscope.source import Source
from gradscope.source.spans import statement_at
from gradscope.source.tree import covers, parts

_MOST = 8
# What a ufunc says of arrays; of a single number, as a metric is, it says "in scalar divide".
_TOLD = re.compile(r"(invalid value|divide by zero|overflow) encountered in (\w+)$")
_NAN = "invalid value"
_WRITTEN = {"divide": ast.Div, "true_divide": ast.Div, "power": ast.Pow, "multiply": ast.Mult}


def array_faults(
    called_from: Iterable[Mapping[str, Any]], events: Sequence[Event]
) -> tuple[ArrayFault, ...]:
    """Those whose result was read where bad data came in. Python keeps what it has warned of, by
    line, among the variables of each module: of these, and of all that are imported."""
    sources = [one for one in events if one.kind is Kind.SOURCE]
    places = [one.call.location for one in sources if one.call.location is not None]
    if not places:
        return ()
    imported = (vars(one) for one in list(sys.modules.values()) if isinstance(one, ModuleType))
    modules = {id(one): one for one in (*called_from, *imported)}
    found: list[ArrayFault] = []
    for held in modules.values():
        registry, file = held.get("__warningregistry__"), held.get("__file__")
        if registry and isinstance(file, str) and kind_of_file(file) == USER:
            found += _of(registry, file, places)
    return tuple(found[:_MOST])


def _of(
    registry: Mapping[object, object], file: str, places: Sequence[Location]
) -> Iterator[ArrayFault]:
    found = source_of(file)
    if found is None:
        return
    source = replace(found, file=shown_path(file))
    read = _read(source, places)
    for key in list(registry):
        if isinstance(key, tuple) and len(key) == 3 and key[1] is RuntimeWarning:
            told, line = _TOLD.match(str(key[0])), key[2]
            here = statement_at(source, Location(source.file, line, 0, line, 0, ""))
            if told is not None and here is not None and _names(_target(here)) & read:
                trouble = Trouble.NAN if told[1] == _NAN else Trouble.INF
                node = _computed(here, line, told[2])
                function = getattr(source.nodes.function(node), "name", "<module>")
                yield ArrayFault(told[2], trouble, span_in(file, function, node))


def _read(source: Source, places: Sequence[Location]) -> frozenset[str]:
    """The names that the statements at these places read, and those that were read for them."""
    read = {name for place in places for name in _names(statement_at(source, place))}
    statements = parts(source.tree, ast.stmt)
    given = [(_names(_target(one)), _names(getattr(one, "value", None))) for one in statements]
    known = 0
    while known < len(read):
        known = len(read)
        read |= {name for targets, values in given if targets & read for name in values}
    return frozenset(read)


def _target(statement: ast.stmt) -> ast.expr | None:
    if isinstance(statement, ast.Assign):
        return statement.targets[0]
    return statement.target if isinstance(statement, ast.AugAssign | ast.AnnAssign) else None


def _names(node: ast.AST | None) -> frozenset[str]:
    """Of variables and attributes, but for the object that has them."""
    owners = {one.value: one.attr for one in parts(node, ast.Attribute)}
    named = (one.id for one in parts(node, ast.Name) if one not in owners)
    return frozenset((*named, *owners.values()))


def _computed(statement: ast.stmt, line: int, op: str) -> ast.expr | ast.stmt:
    """The one expression on a line that may be the op, else the statement."""
    written: list[ast.BinOp | ast.AugAssign] = [*parts(statement, ast.BinOp)]
    written += parts(statement, ast.AugAssign)
    ops = [one for one in written if covers(one, line) and type(one.op) is _WRITTEN.get(op)]
    return ops[0] if len(ops) == 1 else statement
