"""From a span that a frame reported to the expression in the tree, and to the span to show: of a
chain `a.b().sqrt()` the last link, which is what ran there."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from gradscope.facts import Call, Event, Finding, Location
from gradscope.source.text import NO_TEXTS, Source, Texts, parsed
from gradscope.source.tree import Op, assigned, covers


def expression(source: Source, location: Location | None) -> Op | None:
    """The expression (or `x /= y`) that a span covers exactly; None where it is in another file.

    The span may be the whole of a method chain, as `co_positions` has it, or trimmed to its last
    call, as `shown` has it. None where nothing fits, or where the tree's places are unreliable
    (inside f-strings before Python 3.12) and the text there is something else.
    """
    if location is None or location.file != source.file:
        return None
    if not 0 < location.line <= location.end_line <= len(source.lines):
        return None
    start = source.offset(location.line, location.col)
    end = location.end_line, len(source.line(location.end_line)[: location.end_col].encode())
    found = source.nodes.ending(end)
    exact = [node for node in found if source.extent(node)[0] == start]
    trimmed = [node for node in found if isinstance(node, ast.Call) and _dot(source, node) == start]
    # `(a.b())` and its inner call cannot share a span, but `x` as an expression statement
    # and as a name can: the outermost is walked first.
    return next((node for node in (*exact, *trimmed) if _reads_as_itself(source, node)), None)


def _reads_as_itself(source: Source, node: Op) -> bool:
    if isinstance(node, ast.AugAssign) or not any(
        isinstance(one, ast.JoinedStr) for one in (node, *ancestors(source, node))
    ):
        return not isinstance(node, ast.Starred | ast.Slice)
    try:
        again = ast.parse(f"({source.of(node)}\n)", mode="eval").body
    except SyntaxError:
        return False
    return alike(again, node)


def alike(one: ast.AST, other: ast.AST) -> bool:
    """Whether two trees say the same. Without recursion: a sum may have a thousand terms."""
    pairs = zip_longest(ast.walk(one), ast.walk(other))
    return all(a is not None and b is not None and _label(a) == _label(b) for a, b in pairs)


def _label(node: ast.AST) -> tuple[object, ...]:
    """All of a node but what is below it, of which the number must agree."""
    if isinstance(node, ast.expr_context):
        return ()
    held = (value for _, value in ast.iter_fields(node))
    return type(node), *(
        type(one) if isinstance(one, ast.AST) else len(one) if isinstance(one, list) else repr(one)
        for one in held
    )


def _dot(source: Source, call: ast.Call) -> int | None:
    """Where the last link `.sqrt()` of a chain starts."""
    if not isinstance(call.func, ast.Attribute):
        return None
    name_at = source.extent(call.func)[1] - len(call.func.attr)
    return source.text.rfind(".", 0, name_at)


def shown(source: Source, location: Location) -> Location:
    """The span to point at: of a chain `a.b().sqrt()` only the last link."""
    node = expression(source, location)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return location
    receiver = node.func.value
    chained = any(isinstance(part, ast.Call) for part in ast.walk(receiver))
    dot = _dot(source, node)
    if dot is None or not (chained or receiver.lineno != node.end_lineno):
        return location
    line, col = source.place(dot)
    return replace(location, line=line, col=col)


def user_of(source: Source, node: ast.AST) -> ast.AST:
    """What an expression stands in: of `x` in `x.log()` the call."""
    above = source.parents[node]
    return source.parents[above] if isinstance(above, ast.Attribute) else above


def targets_of(source: Source, value: ast.AST) -> list[ast.expr]:
    """What alone is assigned an expression: `a` of `a, b = value, c`, `a` and `b` of
    `a = b = value`."""
    made = source.parents.get(value)
    whole = source.parents[made] if isinstance(made, ast.Tuple) else made
    if isinstance(whole, ast.AnnAssign):
        return [whole.target] if whole.value is value else []
    if not isinstance(whole, ast.Assign):
        return []
    pairs = (pair for target in whole.targets for pair in assigned(target, whole.value))
    return [target for target, given in pairs if given is value]


def ancestors(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """The nodes around a node, innermost first."""
    while node in source.parents:
        node = source.parents[node]
        yield node


def parenthesized(source: Source, node: ast.expr) -> tuple[int, int]:
    """A node's extent with the parentheses around it alone: `(x + y)` of `a / (x + y)`."""
    text = source.text
    start, end = source.extent(node)
    while True:
        before, after = start - 1, end
        while before >= 0 and text[before].isspace():
            before -= 1
        while after < len(text) and text[after].isspace():
            after += 1
        if before < 0 or text[before] != "(" or text[after : after + 1] != ")":
            return start, end
        # The parentheses of a call belong to the call, not to its only argument.
        if before > 0 and (text[before - 1].isalnum() or text[before - 1] in "_)]"):
            return start, end
        start, end = before, after + 1


def statement_at(source: Source, place: Location | None) -> ast.stmt | None:
    """The innermost statement around a place; None where that is in another file."""
    if place is None or place.file != source.file:
        return None
    found = [
        one
        for one in ast.walk(source.tree)
        if isinstance(one, ast.stmt) and covers(one, place.line)
    ]
    return max(found, key=lambda one: (one.lineno, one.col_offset), default=None)


def pointed(findings: Iterable[Finding], texts: Texts = NO_TEXTS) -> tuple[Finding, ...]:
    """The findings with every place in them narrowed to what a reader looks for. `texts` stand in
    for files, by their real path."""
    narrow = _Narrow(texts)
    return tuple(map(narrow.finding, findings))


@dataclass(slots=True)
class _Narrow:
    """Reads each file once, and looks at each place once: many findings share a chain."""

    _texts: Texts
    _sources: dict[str, Source | None] = field(default_factory=dict)
    _places: dict[Location, Location] = field(default_factory=dict)

    def finding(self, one: Finding) -> Finding:
        return replace(
            one,
            location=self._place(one.location),
            related=tuple(
                replace(also, location=self._place(also.location) or also.location)
                for also in one.related
            ),
            chain=tuple(map(self._event, one.chain)),
        )

    def _event(self, one: Event) -> Event:
        path = tuple(map(self._call, one.path))
        return replace(one, call=self._call(one.call), blame=self._call(one.blame), path=path)

    def _call(self, one: Call) -> Call:
        return replace(one, location=self._place(one.location))

    def _place(self, location: Location | None) -> Location | None:
        if location is None:
            return None
        if location not in self._places:
            self._places[location] = self._narrowed(location)
        return self._places[location]

    def _narrowed(self, location: Location) -> Location:
        if location.file not in self._sources:
            self._sources[location.file] = parsed(location.file, self._texts)
        source = self._sources[location.file]
        return location if source is None else shown(source, location)
