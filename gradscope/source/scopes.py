"""The scopes of a text, and where each of their names is bound and read.

Which scope a name belongs to is what Python's own symbol table says; where in the text it is bound
is read off the tree.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import field
from symtable import SymbolTable

from gradscope.dataclass import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
OPENS = Function | ast.ClassDef | Comprehension  # the nodes that have a scope of their own

_TABLES = {
    ast.Lambda: "lambda",
    ast.ListComp: "listcomp",
    ast.SetComp: "setcomp",
    ast.DictComp: "dictcomp",
    ast.GeneratorExp: "genexpr",
}
Place = tuple[int, int]  # line and column as ast counts them


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that gives a name a value.

    `value` is the expression of an assignment `name = value` or `name, other = value, another`, and
    None for every other way: a parameter, a loop, `+=`, an unpacking, an import, `del`. `at` is
    where its statement starts.
    """

    at: Place
    statement: ast.stmt
    value: ast.expr | None = None


@dataclass(eq=False, slots=True)
class Scope:
    """One block of names: a module, a function, a class or a comprehension."""

    node: OPENS
    parent: Scope | None
    # None where Python's table has no such block: since 3.12 most comprehensions are a part of what
    # they stand in, and so are the blocks inside of them.
    table: SymbolTable | None
    bindings: defaultdict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    reads: defaultdict[str, list[ast.Name]] = field(default_factory=lambda: defaultdict(list))
    _tables: dict[tuple[str, int], list[SymbolTable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.table is None and self.parent is not None:
            self._tables = self.parent._tables
        for table in reversed(list(_blocks(self.table))):  # the first of a line is popped first
            self._tables.setdefault((table.get_name(), table.get_lineno()), []).append(table)

    def within(self, node: OPENS) -> Scope:
        """The scope of a node that stands in this one. Nodes must come in the order of the text."""
        name = _TABLES.get(type(node)) or str(getattr(node, "name", ""))
        found = self._tables.get((name, getattr(node, "lineno", 0)))
        return Scope(node, self, found.pop() if found else None)

    @property
    def function(self) -> Scope:
        """The innermost function (or the module) whose code runs what stands in this scope."""
        scope = self
        while not isinstance(scope.node, Function) and scope.parent is not None:
            scope = scope.parent
        return scope

    def owner(self, name: str) -> Scope:
        """The scope that a name in this one belongs to: this, one around it, or the module."""
        if self.table is None and isinstance(self.node, Comprehension) and self.parent is not None:
            own = (part for one in self.node.generators for part in ast.walk(one.target))
            is_own = any(name in bound(part) for part in own)
            return self if is_own else self.parent.owner(name)
        if self.parent is None or self.table is None or not _knows(self.table, name):
            return self
        symbol = self.table.lookup(name)
        if symbol.is_local():
            return self
        scope = self.parent
        while scope.parent is not None and (symbol.is_global() or not scope._hands_down(name)):
            scope = scope.parent
        return scope

    def _hands_down(self, name: str) -> bool:
        """Whether a name of an inner scope may be one of this: those of a class are not."""
        is_class = isinstance(self.node, ast.ClassDef)
        known = not is_class and self.table is not None and _knows(self.table, name)
        return known and self.table is not None and self.table.lookup(name).is_local()

    def bind(self, name: str, node: ast.AST, statement: ast.stmt, value: ast.expr | None) -> None:
        """Nodes must come in the order of the text."""
        made, at = self.bindings[name], (statement.lineno, statement.col_offset)
        if isinstance(node, ast.arg):
            at = (0, 0)  # before all that its function does, a lambda too
        elif made:  # the name of an `except` comes after what its `try` bound
            at = max(at, made[-1].at)
        made.append(Binding(at, statement, value))

    def before(self, name: str, place: Place) -> int:
        """How many bindings of a name start before a place."""
        return bisect_left(self.bindings.get(name, ()), place, key=lambda one: one.at)


def _blocks(table: SymbolTable | None) -> Iterator[SymbolTable]:
    """The blocks right inside of one, through those that Python adds for type parameters."""
    for inner in table.get_children() if table is not None else ():
        if inner.get_type() in ("function", "class"):
            yield inner
        else:
            yield from _blocks(inner)


def _knows(table: SymbolTable, name: str) -> bool:
    return name in table.get_identifiers()


def outside(node: OPENS) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The parts of a node with a scope that are run outside of it, each after the node that it is
    a part of: defaults, annotations, decorators, bases, what a comprehension goes over."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            spec = node.args
            listed = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
            yield from ((spec, part) for part in (*spec.defaults, *spec.kw_defaults) if part)
            yield from ((one, one.annotation) for one in listed if one and one.annotation)
            if not isinstance(node, ast.Lambda):
                yield from ((node, part) for part in (node.returns, *node.decorator_list) if part)
        case ast.ClassDef():
            yield from ((node, part) for part in (*node.decorator_list, *node.bases))
            yield from ((node, part) for part in node.keywords)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield node.generators[0], node.generators[0].iter


def bound(node: ast.AST) -> Iterable[str]:
    """The names that a node itself binds in its scope."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.arg(arg=name):
            return (name,)
        case ast.alias(name=name, asname=given):
            return ((given or name).partition(".")[0],)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return (name,)
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return (name,)
    return ()
