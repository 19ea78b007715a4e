"""A text as a tree that is walked once: what is around each node, whose its names are, and what
they stand for by the imports."""

from __future__ import annotations

import ast
import symtable
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeVar

from gradscope.dataclass import dataclass
from gradscope.source.scopes import OPENS, Function, Place, Scope, bound, outside


@dataclass(frozen=True, slots=True)
class Names:
    """`F` -> torch.nn.functional, `sqrt` -> torch.sqrt."""

    imported: Mapping[str, str]

    @classmethod
    def of(cls, module: ast.Module) -> Names:
        """By the imports of a file, and by what it gives another name: sqrt = torch.sqrt"""
        imported: dict[str, str] = {}
        renamed = []
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    imported[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                renamed.append((node.targets[0], node.value))
        names = cls(imported)
        for target, value in renamed:
            dotted = names.dotted(value)
            if dotted and isinstance(target, ast.Name):
                imported.setdefault(target.id, dotted)
        return names

    def dotted(self, node: ast.expr) -> str | None:
        """`th.linalg.norm` -> torch.linalg.norm; None for what does not start at an import."""
        links = []
        while isinstance(node, ast.Attribute):
            links.append(node.attr)
            node = node.value
        base = self.imported.get(node.id) if isinstance(node, ast.Name) else None
        return ".".join((base, *reversed(links))) if base else None

    def spell(self, dotted: str) -> str | None:
        """How the file can write a dotted name: torch.where -> `th.where`; None if it cannot.

        From the import that comes nearest to the name, the first of several.
        """
        reaching = {
            name: target
            for name, target in self.imported.items()
            if dotted == target or dotted.startswith(f"{target}.")
        }
        name = max(reaching, key=lambda name: len(reaching[name]), default=None)
        return None if name is None else name + dotted[len(reaching[name]) :]


Kind = TypeVar("Kind", bound=ast.AST)
Op = ast.expr | ast.AugAssign  # what can run an op


def covers(node: ast.expr | ast.stmt, line: int) -> bool:
    """Whether a line is one of those that a node stands on."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def parts(node: ast.AST | None, kind: type[Kind]) -> Iterator[Kind]:
    """The parts of a node that are of a kind, it among them; none of nothing."""
    return (one for one in ast.walk(node or ast.Pass()) if isinstance(one, kind))


def names_in(node: ast.AST | None) -> set[str]:
    """The names that are read or written in a node."""
    return {one.id for one in parts(node, ast.Name)}


def last_name(node: ast.AST | None) -> str:
    """The last name that an expression reads or writes: `attr` of an attribute; empty of others."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


# Python has one object for all of a kind of these.
_SHARED = ast.expr_context | ast.operator | ast.unaryop | ast.boolop | ast.cmpop


class Tree:
    """The nodes of a text. Lines and columns are as ast counts them."""

    def __init__(self, text: str) -> None:
        self.module = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._kinds: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._ending: defaultdict[Place, list[Op]] = defaultdict(list)
        self._scopes: dict[ast.AST, Scope] = {}
        self._walk(Scope(self.module, None, symtable.symtable(text, "<text>", "exec")))

    def every(self, kind: type[Kind]) -> Iterator[Kind]:
        """All nodes of a kind, in the order of the text."""
        for node in self._kinds.get(kind, ()):
            assert isinstance(node, kind)
            yield node

    def given(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What every assignment gives what: the targets and their values, as `assigned` has it."""
        for made in self.every(ast.Assign):
            for target in made.targets:
                yield from assigned(target, made.value)
        yield from ((one.target, one.value) for one in self.every(ast.AnnAssign) if one.value)

    def ending(self, at: Place) -> Sequence[Op]:
        """The expressions that end at a place, the outermost first."""
        return self._ending.get(at, ())

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which a node stands. A function stands in the one that defines it."""
        return self._scopes[node]

    def owner(self, name: ast.Name) -> Scope:
        """The scope that a name belongs to."""
        return self._scopes[name].owner(name.id)

    def reads(self, name: ast.Name) -> list[ast.Name]:
        """The places that read what has a name there."""
        return self.owner(name).reads.get(name.id, [])

    def function(self, node: ast.AST) -> Function:
        """The innermost function (or the module) whose code runs a node."""
        found = self._scopes[node].function.node
        assert isinstance(found, Function)
        return found

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that holds a node."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    @cached_property
    def names(self) -> Names:
        return Names.of(self.module)

    def _walk(self, module: Scope) -> None:
        waiting: list[tuple[ast.AST, Scope]] = [(self.module, module)]
        opening: set[ast.AST] = set()
        while waiting:
            node, scope = waiting.pop()
            if isinstance(node, OPENS) and node not in opening:
                # What is run outside of it is looked at before it, as Python does.
                opening.add(node)
                self._note(node, scope)
                waiting.append((node, scope))
                self._link(node)
                parts = []
                for parent, part in outside(node):
                    self.parents[part] = parent
                    parts.append(part)
            elif node in self._scopes and node not in opening:
                continue  # a part that was run outside
            else:
                if isinstance(node, OPENS):
                    scope = module if node is self.module else scope.within(node)
                else:
                    self._note(node, scope)
                parts = self._link(node)
            waiting += ((part, scope) for part in reversed(parts))

    def _link(self, node: ast.AST) -> list[ast.AST]:
        """The parts of a node, with it as their parent; those of a function's arguments too, in
        which more may stand that is run outside of it."""
        parts = [one for one in ast.iter_child_nodes(node) if not isinstance(one, _SHARED)]
        for part in parts:
            self.parents.setdefault(part, node)
            if isinstance(part, ast.arguments):
                self._link(part)
        return parts

    def _note(self, node: ast.AST, scope: Scope) -> None:
        self._scopes[node] = scope
        self._kinds[type(node)].append(node)
        if isinstance(node, Op):
            self._ending[node.end_lineno or 0, node.end_col_offset or 0].append(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            scope.owner(node.id).reads[node.id].append(node)
        for name in bound(node):
            scope.owner(name).bind(name, node, self.statement(node), self._given(node))

    def _given(self, target: ast.AST) -> ast.expr | None:
        """What `name = value` or `name, other = value, another` gives the name."""
        around = self.parents[target]
        if isinstance(around, ast.Assign | ast.AnnAssign):
            return around.value
        made = self.parents.get(around)
        if not isinstance(around, ast.Tuple) or not isinstance(made, ast.Assign):
            return None
        return next((value for one, value in assigned(around, made.value) if one is target), None)


def assigned(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """What is given what, one by one in `a, b = c, d`; nothing where a tuple is unpacked."""
    if not isinstance(target, ast.Tuple):
        return ((target, value),)
    values, targets = getattr(value, "elts", ()), target.elts
    is_starred = any(isinstance(one, ast.Starred) for one in (*values, *targets))
    is_paired = not is_starred and len(values) == len(targets)
    return zip(targets, values, strict=True) if is_paired else ()


@lru_cache(maxsize=8)
def tree_of(text: str) -> Tree:
    """The tree of a text, made once. SyntaxError, ValueError, RecursionError: it is no Python."""
    return Tree(text)
