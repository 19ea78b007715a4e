"""Statements by the places that a run reported, and what becomes of those around an edit."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from gradscope.facts import Call, Edit, Location
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.logs import OPS
from gradscope.repair.write.reading import atom
from gradscope.repair.write.splice import after, before, whole_lines
from gradscope.source import Source, binding, expression
from gradscope.source.arguments import DRAWS, spelled
from gradscope.source.meaning import reads_of
from gradscope.source.spans import ancestors, statement_at
from gradscope.source.tree import covers, names_in, parts


def node_at(source: Source, place: Location | None) -> ast.AST | None:
    """The expression that a place covers, else the statement on its lines."""
    return expression(source, place) or statement_at(source, place)


def beside(
    source: Source, one: Location | None, other: Location
) -> tuple[ast.stmt | None, ast.stmt | None]:
    """The statements around two places that stand in one block, the first one first."""
    first, second = statement_at(source, one), statement_at(source, other)
    if first is None or second is None:
        return None, None
    around = [second, *(node for node in ancestors(source, second) if isinstance(node, ast.stmt))]
    for outer in (first, *ancestors(source, first)):
        if not isinstance(outer, ast.stmt):
            continue
        block = block_of(source, outer)
        match = next((node for node in around if node in block), None)
        if match is not None and block.index(outer) < block.index(match):
            return outer, match
    return None, None


def block_of(source: Source, statement: ast.stmt) -> list[ast.stmt]:
    parent = source.parents[statement]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return [statement]


def enclosing(source: Source, node: ast.AST | None) -> list[ast.AST]:
    """What is around a node in its function, the innermost first."""
    if node is None:
        return []
    function = source.nodes.function(node)
    return [*takewhile(lambda one: one is not function, ancestors(source, node))]


def lines_of(calls: Iterable[Call], near: Location) -> set[int]:
    """The lines in the function around a place from which the calls were made."""
    return {
        frame.line
        for call in calls
        for frame in call.frames
        if (frame.file, frame.function) == (near.file, near.function)
    }


def is_on(statement: ast.stmt, lines: set[int]) -> bool:
    return any(covers(statement, line) for line in lines)


def within(source: Source, opening: str, first: ast.stmt, text: str) -> str:
    """Statements from `first` on in a block that is opened so: `with torch.no_grad()`."""
    new, indent = source.newline, source.indent(first.lineno)
    lines = (f"    {line}" if line.strip() else line for line in text.split(new))
    return f"{opening}:{new}{indent}{new.join(lines)}"


def dropped(source: Source, statement: ast.stmt) -> Edit:
    start, past = whole_lines(source, statement) or (0, 0)
    return source.edit(start, past, "")


def left_out(source: Source, statement: ast.stmt) -> Edit:
    """Without a statement, and the loops and conditions around it in which nothing else is."""
    while len(block_of(source, statement)) == 1:
        around = source.parents[statement]
        if not isinstance(around, ast.For | ast.If) or around.orelse:
            break
        statement = around
    is_apart = len(block_of(source, statement)) > 1 and whole_lines(source, statement)
    return dropped(source, statement) if is_apart else source.replaced(statement, "pass")


def without_last(source: Source, last: ast.expr | None) -> Iterator[Edit]:
    """A list or a call without its last item, a list without what is appended to it, and
    `nn.Sequential(*layers[:-1])`."""
    above = source.parents[last] if last is not None else None
    items = getattr(above, "elts", getattr(above, "args", []))
    match last:
        case ast.Call(args=[*_, ast.Starred(value=ast.GeneratorExp() as many) as unpacked]):
            yield source.replaced(unpacked, f"*[{source.of(many)[1:-1]}][:-1]")
        case ast.Call(args=[*_, ast.Starred(value=many) as unpacked]):
            yield source.replaced(unpacked, f"*{atom(source.of(many))}[:-1]")
        case ast.expr() if isinstance(above, ast.Expr):
            yield left_out(source, above)
        case ast.expr() if items[1:] and items[-1] is last:
            yield source.edit(source.extent(items[-2])[1], source.extent(last)[1], "")


def for_all_readers(culprit: Culprit, name: ast.Name, value: str) -> tuple[Edit, ...]:
    """A template of a value for a name that several lines read, given to it where its function gets
    it; nothing where the text does not tell that, or one line reads it alone."""
    source = culprit.source
    given = binding(source, name)
    if given is None or len(source.nodes.reads(name)) < 2:
        return ()
    if isinstance(given.statement, ast.FunctionDef):
        return rebound(culprit, {name.id}, value)
    return after(source, given.statement, f"{name.id} = {value.format(x=name.id)}")


def body_of(function: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function, without its docstring."""
    return function.body[ast.get_docstring(function) is not None :]


def last_returned(function: ast.FunctionDef) -> ast.expr | None:
    """What the last return in it gives."""
    returns = [*parts(function, ast.Return)]
    return returns[-1].value if returns else None


def rebound(culprit: Culprit, read: set[str], value: str) -> tuple[Edit, ...]:
    """A line at the top of the function that gives the parameters which the culprit reads a value
    made of theirs, `{x}` in its template."""
    if culprit.node is None:
        return ()
    where = culprit.source.nodes.function(culprit.node)
    if not isinstance(where, ast.FunctionDef):
        return ()
    names = [one.arg for one in where.args.args if one.arg in read and one.arg != "self"]
    first = body_of(where)[:1]
    if not names or not first:
        return ()
    values = ", ".join(value.format(x=name) for name in names)
    return before(culprit.source, first[0], f"{', '.join(names)} = {values}")


def not_needed(found: Sequence[ast.stmt], kept: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that may go: what a line that stays reads, stays."""
    for one in reversed(found):
        kept += [one] if isinstance(one, ast.Assign) and is_needed(one, kept) else []
    return [one for one in found if one not in kept]


def is_needed(what: ast.Assign, others: Iterable[ast.stmt]) -> bool:
    """Whether one of the others, below it, has a name that it assigns."""
    names = set[str]().union(*map(names_in, what.targets))
    below = (names_in(other) for other in others if other.lineno > what.lineno)
    return any(names & theirs for theirs in below)


def left_over(culprit: Culprit, node: ast.expr, text: str) -> Iterator[Edit]:
    """The edits that drop the assignments whose names were read in `node` alone, in whose place
    `text` stands now; what they do beside giving a value must be done by the text."""
    source = culprit.source
    kept = names_in(ast.parse(f"({text})"))
    gone: set[ast.AST] = {*ast.walk(node)}
    waiting = [*parts(node, ast.Name)]
    while waiting:
        name = waiting.pop()
        given = binding(source, name)
        made = given.statement if given is not None else None
        if not isinstance(made, ast.Assign) or made in gone or name.id in kept:
            continue
        owner = source.nodes.owner(name)
        if owner is not source.nodes.scope(made).function or len(made.targets) > 1:
            continue
        read: list[ast.Name] | None = source.nodes.reads(name)
        if len(owner.bindings[name.id]) > 1:  # `w = exp(x)`, then `w = w / w.sum()`
            read = reads_of(source, name, made)
        if read is not None and gone.issuperset(read) and _is_replaced(culprit, made, text):
            gone |= {*ast.walk(made)}
            waiting += parts(made.value, ast.Name)
            if whole_lines(source, made) and len(block_of(source, made)) > 1:
                yield dropped(source, made)


def _is_replaced(culprit: Culprit, made: ast.Assign, text: str) -> bool:
    """Whether its calls are those of torch, which do nothing else, or stand in the text."""
    return isinstance(made.targets[0], ast.Name) and all(
        _is_function(culprit, one) or culprit.source.of(one) in text
        for one in parts(made.value, ast.Call)
    )


def _is_function(culprit: Culprit, call: ast.Call) -> bool:
    found = spelled(culprit.source, call)
    dotted = culprit.dotted(call)
    is_op = found.method and found.name in OPS
    is_torch = dotted.startswith("torch.") and not dotted.startswith("torch.nn.init")
    drawn = found.name in DRAWS or dotted.endswith("_")
    return bool(found) and (is_op or is_torch) and not drawn
