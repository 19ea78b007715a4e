"""Reading an expression through the names that stand for its parts, and writing another of them.

A part may stand on an earlier line (`p = softmax(z)`, then `log(p)`): a name is read as what its
function gives it, as long as that still means the same where it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gradscope.facts import Edit
from gradscope.repair.write.culprit import ATOMS, Culprit
from gradscope.repair.write.uses import (
    argument_of,
    calls_around,
    given_to,
    handed_over,
    is_handed_along,
    only_call,
    reads_of_argument,
    returned,
)
from gradscope.source import definition, holds
from gradscope.source.arguments import Spelled, plainly, spelled
from gradscope.source.meaning import is_size, reads_of
from gradscope.source.spans import alike, ancestors, targets_of

_FARTHEST = 4  # names that are given each other


class Rebound(Exception):
    """What an expression was made of means something else where it is to be written."""


@dataclass
class Reading:
    """Reads one expression, through names, and remembers which nodes it has looked at. `place` is
    where the text that is being made stands.

    `in_place`: a name that nothing else reads keeps its line, and is given another value there:
    `rewritten` has them, `apart` those that cannot be.
    """

    culprit: Culprit
    place: ast.expr
    in_place: bool = False
    seen: set[ast.AST] = field(default_factory=set)
    rewritten: dict[ast.expr, str] = field(default_factory=dict)
    apart: frozenset[ast.expr] = frozenset()
    carried: frozenset[str] = frozenset()  # names that hold logarithms already
    rank: int = 1  # of what these multiply: 1, a vector, to 3, a batch of matrices
    _given: set[ast.expr] = field(default_factory=set)  # what names were given, of that
    _handed: set[ast.AST] = field(default_factory=set)  # reads of it
    has_plain_log: bool = False  # what was written takes a logarithm that undoes nothing

    def form(self, write: Callable[[Reading, ast.expr], str | None], node: ast.expr) -> str | None:
        """What `write` makes of a node; None where that has no such form, or would mean something
        else at the place."""
        with suppress(Rebound):
            return write(self, node)
        return None

    def meaning(self, node: ast.expr) -> ast.expr:
        """What a name stands for here; the node itself where that is not known."""
        while True:
            given = self.given(node)
            if given is None or not self._holds(given):
                return node
            node = given

    def given(self, node: ast.expr) -> ast.expr | None:
        """What a name was given, which may mean something else here; None where nobody knows."""
        self.seen.add(node)
        source, around = self.culprit.source, [self.place]
        given = definition(source, node)
        if given is None and (given := handed_over(source, node)) is not None:
            around += filter(None, [only_call(source, node)])
        if given is None:
            return None
        # Computed under no_grad or autocast, it would mean something else outside of that.
        here = set[ast.AST]().union(*(_blocks(self.culprit, one) for one in around))
        return None if _blocks(self.culprit, given) - here else given

    def _holds(self, node: ast.expr) -> bool:
        """Whether an expression has the same value at the place."""
        source = self.culprit.source
        return holds(source, node, self.place) or is_handed_along(source, node, self.place)

    def rewrite(self, node: ast.expr, write: Callable[[ast.expr], str | None]) -> str | None:
        """The node, where what its name is given, or what the function that it calls returns, can
        be written otherwise in its own line."""
        given = self._made(node) if self.in_place else None
        if given is None or given in self.apart:
            return None
        if given not in self.rewritten:
            self.seen.add(given)
            with self._placed(given):
                text = self.rewrite(given, write) or write(given)
            if text is None:
                return None
            self.rewritten[given] = text
            self._given.add(given)
        self._handed.add(node)
        return self.culprit.source.of(node)

    def _made(self, node: ast.expr) -> ast.expr | None:
        source = self.culprit.source
        if isinstance(node, ast.Call):
            # Reached through a name, its value is that name's as well.
            is_here = node is self.place or self.place in ancestors(source, node)
            return returned(source, node) if is_here else None
        given = self.given(node)
        if given is None and isinstance(node, ast.Name):
            return argument_of(source, node)
        return given if given is not None and len(targets_of(source, given)) == 1 else None

    def also(self, write: Callable[[Reading, ast.expr], str | None], node: ast.expr) -> bool:
        """Rewrites another expression in its own place; False where it has no such form."""
        with self._placed(node):
            text = self.form(write, node)
        if text is not None:
            self.rewritten[node] = text
        return text is not None

    def edits(self) -> list[Edit] | None:
        """What is rewritten in its own place, but for a name, or a call, that stands for what was
        rewritten; None where that takes several lines."""
        texts = {node: self.culprit.torch(one) for node, one in self.rewritten.items()}
        if any("\n" in text for text in texts.values()):
            return None
        changed = (
            (one, text) for one, text in texts.items() if text != self.culprit.source.of(one)
        )
        return [self.culprit.replace(one, text) for one, text in changed]

    @contextmanager
    def _placed(self, node: ast.expr) -> Iterator[None]:
        """With the place of another text inside."""
        self.place, outer = node, self.place
        try:
            yield
        finally:
            self.place = outer

    def misread(self) -> dict[ast.expr, tuple[ast.expr, ...]]:
        """What was rewritten, and where it is read elsewhere as it was; no place where the text
        does not tell them."""
        found = {given: self._misread_at(given) for given in self._given}
        return {given: at for given, at in found.items() if at is not None}

    def _misread_at(self, given: ast.expr) -> tuple[ast.expr, ...] | None:
        source, made = self.culprit.source, self.culprit.source.parents[given]
        if isinstance(made, ast.Return):
            called_at = calls_around(source, given)
            return self._not_handed(called_at) or (None if called_at else ())
        call = source.parents[made] if isinstance(made, ast.keyword) else made
        if isinstance(call, ast.Call):
            return self._not_handed(reads_of_argument(source, call, given))
        targets = targets_of(source, given)
        target = targets[0] if len(targets) == 1 else None
        if not isinstance(target, ast.Name):
            return ()
        reads = reads_of(source, target, source.nodes.statement(given))
        return self._not_handed(reads) if reads is not None else ()

    def _not_handed(self, reads: Iterable[ast.expr]) -> tuple[ast.expr, ...] | None:
        return tuple(one for one in reads if not self._is_handed(one)) or None

    def _is_handed(self, read: ast.expr) -> bool:
        """A line that was copied to the place stays as it is, and reads what it read."""
        written = (self.place, *self.rewritten)
        around = (read, *ancestors(self.culprit.source, read))
        return read in self._handed and any(one in written for one in around)

    def op(self, node: ast.expr, *names: str) -> Spelled | None:
        """The op that a node writes, if it is one of these."""
        found = plainly(self.culprit.source, self.meaning(node))
        return found if found.name in names and found.positional else None

    def argument(self, node: ast.expr, *names: str) -> ast.expr | None:
        """The first operand of a node that writes one of these ops."""
        found = self.op(node, *names)
        return found.positional[0] if found else None

    def squared(self, node: ast.expr) -> ast.expr | None:
        """z of z ** 2, z.pow(2), z.square() and z * z."""
        if (product := self.op(node, "mul")) and self.same(*product.positional):
            return product.positional[0]
        power = self.op(node, "pow")
        if not power:
            return None
        exponents = [self.number(part) for part in power.positional[1:]]
        return power.positional[0] if exponents in ([], [2]) else None

    def number(self, node: ast.expr) -> float | None:
        node = self.meaning(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        return None

    def text(self, node: ast.expr) -> str:
        """Its source. Raises Rebound where that means something else here."""
        if not self._holds(node):
            raise Rebound
        return self.culprit.source.of(node)

    def factor(self, node: ast.expr) -> str:
        """A node's text as a factor of a product."""
        return factor(self.text(node))

    def same(self, first: ast.expr, second: ast.expr) -> bool:
        return alike(self.meaning(first), self.meaning(second))

    def dim(self, found: Spelled) -> str | None:
        """The `dim` argument of a reduction as text."""
        node = found.keywords.get("dim") or found.keywords.get("axis")
        if node is None and len(found.positional) > 1:
            node = found.positional[1]
        return self.text(node) if node is not None else None

    def rest(self, found: Spelled) -> str:
        """The arguments of a call behind its first operand, as they are written."""
        named = (f"{name}={self.text(node)}" for name, node in found.keywords.items())
        return ", ".join((*map(self.text, found.positional[1:]), *named))

    def call(self, name: str, operand: str, rest: str = "") -> str:
        """A function of torch as the expression that it takes the place of is written: as a call,
        or as a method."""
        if spelled(self.culprit.source, self.place).method:
            return f"{atom(operand)}.{name}({rest})"
        return f"torch.{name}({', '.join(filter(None, (operand, rest)))})"

    def log(self, node: ast.expr) -> str:
        """The logarithm of an expression as it is, by the module `math` of a Python number."""
        self.has_plain_log = True
        if not self._is_number(node):
            return self.call("log", self.text(node))
        log, text = self.culprit.names.spell("math.log"), self.text(node)
        return f"{log}({text})" if log is not None else f"torch.tensor({text}).log()"

    def _is_number(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is a Python number, also through what its names, and attributes of
        its object, are given."""
        if is_size(self.culprit.source, node):
            return True
        if isinstance(node, ast.UnaryOp | ast.BinOp):
            sides = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
            return all(self._is_number(one, depth) for one in sides)
        if self.culprit.dotted(node).startswith("math."):
            return True
        given = given_to(self.culprit.source, node) if depth < _FARTHEST else None
        return given is not None and given is not node and self._is_number(given, depth + 1)


def atom(text: str) -> str:
    """A text as an operand of anything: in parentheses unless it is an atom."""
    return text if isinstance(_parsed(text), ATOMS) else f"({text})"


def negative(text: str) -> str:
    """A text with the other sign: of `-x / t` that is `x / t`."""
    node = _parsed(text)
    if text.startswith("-") and (_is_product(node) or isinstance(node, ast.UnaryOp)):
        return text[1:].lstrip()
    return f"-{atom(text)}"


def factor(text: str) -> str:
    """A text as a factor of a product."""
    node = _parsed(text)
    return text if _is_product(node) or isinstance(node, ast.Constant) else atom(text)


def term(text: str) -> str:
    """A text as the second term of a sum or difference."""
    node = _parsed(text)
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    return f"({text})" if is_sum or isinstance(node, ast.UnaryOp) else text


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)


def _parsed(text: str) -> ast.expr:
    return ast.parse(f"({text}\n)", mode="eval").body  # which may have comments, and lines


def _blocks(culprit: Culprit, node: ast.expr) -> set[ast.AST]:
    """The `with` statements around a node."""
    around = ancestors(culprit.source, node)
    return {one for one in around if isinstance(one, ast.With | ast.AsyncWith)}
