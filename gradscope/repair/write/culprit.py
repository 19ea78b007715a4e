"""The culprit of a finding in the user's source: its node, its operands, the facts of its op, and
what can be written there; and a repair of it that can be tried."""

import ast
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import field, replace

from gradscope.dataclass import dataclass
from gradscope.facts import Call, Edit, Finding, Location, NotTried, Reason
from gradscope.ops import Edge, lookup
from gradscope.ops.dtypes import Margin
from gradscope.repair.budget import Search
from gradscope.repair.write.splice import before
from gradscope.source import Names, Source, SourceError, expression, find, operands, parsed, read
from gradscope.source.arguments import called, draws, is_in_place, spelled
from gradscope.source.spans import parenthesized, statement_at
from gradscope.source.text import NO_TEXTS, Texts
from gradscope.source.tree import Op, parts


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to write a fix. `kind` is that of the fix, unless said otherwise. `same` claims that
    the loss and all finite gradients stay bit-identical; otherwise verification says by how much
    they moved. `begins_alike` claims that of the loss up to the finding's step. `own_number`: the
    program's own number tells what was to be bounded, which no run of it as it stands could show.
    `alone`: where it does not do by itself, it is not to be completed. `everywhere`: it gives all
    elements other values, and not a few alone."""

    title: str
    edits: tuple[Edit, ...]
    kind: str = ""
    same: bool = False
    begins_alike: bool = False
    own_number: bool = False
    alone: bool = False
    everywhere: bool = False


Edits = Iterable[Edit]
# The best first; edits alone have the title of the fix. What has no edits is left out.
Ways = Iterable[Candidate | Edits]

_TORCH = re.compile(r"(?<![\w.])torch\.(?:nn\.functional\.)?")
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Tuple)


class NoTorch(Exception):
    """`torch` is something else in a file, which has no other name for it."""


class Unpatchable(Exception):
    """No patch can be written for a finding."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.verdict = NotTried(reason, detail)


@dataclass(frozen=True)
class Culprit:
    """Where a finding stands in the source. `node` is None where its span fits no expression.
    `texts` stand in for files, by their real path."""

    finding: Finding
    source: Source
    node: ast.expr | ast.AugAssign | None
    search: Search = field(default_factory=Search)
    texts: Texts = field(default_factory=dict)

    @property
    def names(self) -> Names:
        return self.source.names

    @property
    def call(self) -> ast.Call | None:
        """The node where it is a call."""
        return self.node if isinstance(self.node, ast.Call) else None

    @property
    def statement(self) -> ast.stmt | None:
        """The innermost statement at the finding's place."""
        return statement_at(self.source, self.finding.location)

    def dotted(self, node: ast.AST | None) -> str:
        """`torch.nn.Linear` of what stands for it, or of a call of that; empty of anything else."""
        function = node.func if isinstance(node, ast.Call) else node
        return (isinstance(function, ast.expr) and self.names.dotted(function)) or ""

    def calls(self, names: Container[str]) -> Iterator[ast.Call]:
        """The calls of the file of what has one of these dotted names."""
        return (one for one in self.source.nodes.every(ast.Call) if self.dotted(one) in names)

    @property
    def operands(self) -> Mapping[str, ast.expr]:
        found = operands(self.source, self.node, self.finding.op) if self.node else {}
        return found or dict(self._passed_on())

    def _passed_on(self) -> Iterator[tuple[str, ast.expr]]:
        """The arguments of a library call that arrived at the op as they are, by their names:
        `exp` inside of `poisson_nll_loss(rate, counts)` read `rate`."""
        if self.call is None:
            return
        given = [*self.call.args, *(key.value for key in self.call.keywords)]
        for one in self.finding.tensors:
            places = [node for node in given if one.name and self.source.of(node) == one.name]
            if len(places) == 1 and one.role != "output":
                yield one.role, places[0]

    @property
    def overwritten(self) -> ast.expr | None:
        """The operand that the op writes its result into."""
        return self.written_by(self.node)

    def written_by(self, node: ast.AST | None) -> ast.expr | None:
        """`h` in `h.log_()`."""
        if not isinstance(node, ast.Call) or not is_in_place(node):
            return None
        return spelled(self.source, node).first

    def at(self, location: Location | None) -> ast.expr | None:
        """The expression at a place in this file."""
        node = expression(self.source, location)
        return node if isinstance(node, ast.expr) else None

    def found(self, place: Location | None) -> tuple[Source, Op | None]:
        """The file of a place, which may be another one, with what stands there; this file, and
        nothing, where that cannot be read."""
        source = self.source
        if place is not None and place.file != source.file:
            source = parsed(place.file, self.texts) or source
        return source, expression(source, place)

    def related(self, role: str) -> Iterator[ast.expr]:
        """The expressions of this file that the finding names as of that role."""
        places = (one.location for one in self.finding.related if one.role == role)
        return filter(None, map(self.at, places))

    @property
    def dtype(self) -> str:
        return self.finding.measured.dtype or "float32"

    @property
    def values(self) -> dict[str, float]:
        """As the edges of the op table ask for them, with the bounds of each operand."""
        found = dict(self.finding.measured.values)
        for one in self.finding.tensors:
            if one.min is not None and one.max is not None:
                found |= {f"{one.role}.min": one.min, f"{one.role}.max": one.max}
        return found

    def edges(self) -> Iterator[Edge]:
        """The op's edges that the operands are on; all of them where that was not measured."""
        fact = lookup(self.finding.op) or lookup(spelled(self.source, self.node).name)
        if fact is not None:
            at = (fact.value_edge(self.values), fact.slope_edge(self.values))
            yield from [edge for edge in at if edge is not None] or fact.edges

    def eps(self, edge: Edge) -> str:
        """The `{eps}` of a guard, as text."""
        sizes = (one.largest for one in self.finding.tensors if one.role == edge.argument)
        return edge.cure.eps(self.dtype, next(sizes, None))

    def text(self, node: ast.expr) -> str:
        """The text of a node as an operand of anything: in parentheses unless it is an atom."""
        text = self.source.of(node)
        return text if isinstance(node, ATOMS) else f"({text})"

    def torch(self, template: str) -> str:
        """A template with `torch.` written as this file can. Where it has no name for torch, that
        stays, and `with_import` gives it one."""
        paths = set(_TORCH.findall(template))
        spelled = {path: self.names.spell(f"{path}x") or f"{path}x" for path in paths}
        named = (one.id for one in self.source.nodes.every(ast.Name))
        is_taken = not self._knows_torch and "torch" in (*self.names.imported, *named)
        if paths and is_taken:
            raise NoTorch
        return _TORCH.sub(lambda path: spelled[path[0]].removesuffix("x"), template)

    @property
    def _knows_torch(self) -> bool:
        return self.names.spell("torch.x") is not None

    def with_import(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """The edits, and an import of torch where they are the first to need its name."""
        if self._knows_torch or not any(_TORCH.search(edit.text) for edit in edits):
            return edits
        return (*self.imported("torch"), *edits)

    def imported(self, module: str) -> tuple[Edit, ...]:
        """An import of a module before the first one that the file has."""
        imports = (
            one
            for one in self.source.nodes.module.body
            if isinstance(one, ast.Import | ast.ImportFrom)
            and getattr(one, "module", "") != "__future__"
        )
        return before(self.source, next(imports, None), f"import {module}")

    def written(self, title: str, node: ast.expr, text: str, kind: str = "") -> Candidate:
        """The fix that puts `text` in the place of a node, and does no more."""
        return Candidate(title, (self.replace(node, text),), kind)

    def replace(self, node: ast.expr, text: str) -> Edit:
        """Put `text` in the place of a node, with or without its parentheses as its place asks."""
        if node is self.overwritten:  # else the op would write into what nobody reads
            text = f"{self.text(node)}.copy_({text})"
        start, end = parenthesized(self.source, node)
        parent = self.source.parents.get(node)
        delimited = isinstance(parent, ast.Call | ast.keyword | ast.Assign | ast.Return) and not (
            isinstance(parent, ast.Call) and parent.func is node
        )
        new = ast.parse(text.strip(), mode="eval").body
        if not (delimited or isinstance(new, ATOMS)):
            text = f"({text})"
        return self.source.edit(start, end, text)


def locate(
    finding: Finding,
    source: Source | None = None,
    search: Search | None = None,
    texts: Texts = NO_TEXTS,
) -> Culprit:
    """The culprit in its file (or in the text that stands in for it), or Unpatchable."""
    location = finding.location
    if location is None:
        raise Unpatchable(Reason.NO_PLACE)
    if location.installed:
        raise Unpatchable(Reason.INSTALLED, location.file)
    try:
        source = source or read(location.file, texts)
        tree = source.tree
    except SourceError as error:
        raise Unpatchable(Reason.UNREADABLE, str(error)) from error
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Unpatchable(Reason.NO_PYTHON, location.file) from error
    assert tree is not None
    if source.encoding not in ("utf-8", "utf-8-sig", "ascii"):
        raise Unpatchable(Reason.ENCODING, source.encoding)
    node = expression(source, location)
    if node is None:
        written = list(find(source, location.line, finding.op))
        node = written[0] if len(written) == 1 else None
    return Culprit(finding, source, node, search or Search(), texts)


def moved(culprit: Culprit, call: Call) -> Culprit:
    """The culprit at another call of the program, or Unpatchable."""
    finding, at = replace(culprit.finding, op=call.op, location=call.location), call.location
    source, _ = culprit.found(at)
    is_there = at is not None and at.file == source.file
    return locate(finding, source if is_there else None, culprit.search, culprit.texts)


_TAKES_OUT = frozenset("next pop popitem popleft read readline recv send".split())
_NUMBERS = frozenset(("abs", "float", "int", "len", "max", "min"))  # Python's own
# What moves elements, and leaves their values as they are.
MOVES = frozenset(
    "contiguous diag diagonal expand flatten flip gather index_select masked_select movedim narrow"
    " permute repeat repeat_interleave reshape roll select squeeze swapaxes t take_along_dim"
    " transpose unsqueeze view".split()
)
LONGEST_TWICE = 120  # characters of an operand that a condition may repeat


def operand_of(culprit: Culprit, edge: Edge) -> ast.expr | None:
    node = culprit.operands.get(edge.argument)
    if node is None and edge.argument in ("A", "input"):  # what other schemas call self
        node = culprit.operands.get("self")
    if isinstance(culprit.node, ast.AugAssign) and node is culprit.node.target:
        return None
    if node is not None and node is culprit.overwritten and not can_repeat(culprit, node):
        return None
    return None if isinstance(node, ast.Constant) else node


def on_edges(culprit: Culprit) -> list[tuple[Edge, ast.expr]]:
    """The edges that the operands are on, each with the operand that is written for it."""
    found = ((edge, operand_of(culprit, edge)) for edge in culprit.edges())
    return [(edge, node) for edge, node in found if node is not None]


def can_repeat(culprit: Culprit, node: ast.expr) -> bool:
    """Whether an operand may be written twice: short, and evaluating it again changes nothing."""
    if len(culprit.source.of(node)) > LONGEST_TWICE:
        return False
    return all(_is_pure(culprit, part) for part in parts(node, ast.Call))


def _is_pure(culprit: Culprit, call: ast.Call) -> bool:
    """A torch function or a method that neither draws random numbers nor writes in place. Whether
    the program's own methods change anything, nothing tells; those that take something out of
    Python's containers and files have these names."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return False
    name = called(call)
    if isinstance(call.func, ast.Name) and name in _NUMBERS:
        return name not in culprit.source.nodes.scope(call).owner(name).bindings
    is_torch = culprit.dotted(call).startswith("torch.") or isinstance(call.func, ast.Attribute)
    is_pure = not (name.endswith("_") or name in _TAKES_OUT or draws(culprit.source, call))
    return is_torch and is_pure


def is_count(culprit: Culprit, edge: Edge) -> bool:
    """Whether what is divided by is a whole number that the program counted."""
    if edge.cure.margin is not Margin.DENOMINATOR:
        return False
    given = (one for one in culprit.finding.tensors if one.role == edge.argument)
    return any(one.dtype.startswith(("int", "uint")) and (one.min or 0) >= 0 for one in given)


def infinity(culprit: Culprit, node: ast.expr) -> float | None:
    """The infinite constant that an expression writes; None of any other."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = infinity(culprit, inner)
            return None if value is None else -value
        case ast.Call(func=ast.Name("float"), args=[ast.Constant(str(text))]):
            written = text.strip().lower().replace("infinity", "inf")
            return {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf}.get(written)
    is_constant = culprit.names.dotted(node) in ("math.inf", "numpy.inf", "torch.inf")
    return math.inf if is_constant else None


def filled(
    culprit: Culprit, edge: Edge, template: str, node: ast.expr, eps: float | None = None
) -> str | None:
    """A template of the op table with the operands' source in it; None where one is not written.
    Its `eps` is the table's own, unless said otherwise."""
    if template.count("{x}") > 1 and not can_repeat(culprit, node):
        return None
    texts = {role: culprit.text(part) for role, part in culprit.operands.items()}
    usual = "1" if is_count(culprit, edge) else culprit.eps(edge)
    texts |= {"x": culprit.text(node), "eps": usual if eps is None else f"{eps:g}"}
    try:
        return culprit.torch(template).format(**texts)
    except (KeyError, IndexError):
        return None
