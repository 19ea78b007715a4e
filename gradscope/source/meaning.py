"""What a name was given, and whether an expression still means the same elsewhere."""

import ast

from gradscope.source.arguments import called, draws
from gradscope.source.scopes import Binding, Function, Place
from gradscope.source.text import Source

_LOOPS = ast.For | ast.AsyncFor | ast.While


def definition(source: Source, name: ast.AST | None) -> ast.expr | None:
    """The expression whose value a name has where it is read; None where the text does not tell,
    and of what is no name."""
    given = binding(source, name) if isinstance(name, ast.Name) else None
    return given.value if given is not None else None


def reads_of(source: Source, name: ast.Name, made: ast.stmt) -> list[ast.Name] | None:
    """The places that read what a statement gives a name; None where the text does not tell."""
    given = {one: binding(source, one) for one in source.nodes.reads(name)}
    if None in given.values():
        return None
    return [one for one, found in given.items() if found is not None and found.statement is made]


def binding(source: Source, name: ast.Name) -> Binding | None:
    """What gave a name the value that it has where it is read; None where the text does not tell.

    What its function bound last before, if no branch and no loop can have given it another; or
    the one thing that a name from outside of the function is ever given.
    """
    scope = source.nodes.owner(name)
    if scope is not source.nodes.scope(name).function:
        only = scope.bindings.get(name.id, ())
        return only[0] if len(only) == 1 else None
    here = source.nodes.statement(name)
    count = scope.before(name.id, _start(here))
    made = scope.bindings[name.id]
    if not count:
        return None
    is_sure = len(made) == 1 or _decides(source, made, count, here)
    return made[count - 1] if is_sure else None


def is_size(source: Source, node: ast.AST) -> bool:
    """Whether an expression is a Python number: one that is written, a tensor's size, or made of
    these, also through names."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.UnaryOp):
        return is_size(source, node.operand)
    if isinstance(node, ast.BinOp):
        return is_size(source, node.left) and is_size(source, node.right)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Call):
        name = called(node)
        return name in ("len", "numel") or (name == "size" and bool(node.args))
    given = binding(source, node) if isinstance(node, ast.Name) else None
    if given is None or given.value is not None:
        return given is not None and given.value is not None and is_size(source, given.value)
    # Unpacked: n, m = x.shape
    whole = given.statement.value if isinstance(given.statement, ast.Assign) else None
    sizes = whole.func if isinstance(whole, ast.Call) and not whole.args else whole
    return isinstance(sizes, ast.Attribute) and sizes.attr in ("shape", "size")


def _decides(source: Source, made: list[Binding], count: int, here: ast.stmt) -> bool:
    """Whether the last of `count` bindings before a statement is always the one that it reads."""
    block = _block(source, made[count - 1].statement)
    while _block(source, here) != block:
        around = source.parents[here]
        if isinstance(around, Function | ast.ClassDef):
            return around is made[count - 1].statement  # a parameter, which nothing has rebound yet
        here = source.nodes.statement(around)
        if isinstance(here, _LOOPS):  # what is bound further down in it comes round again
            end = here.end_lineno or 0, here.end_col_offset or 0
            if count < len(made) and made[count].at < end:
                return False
    return True


def _block(source: Source, statement: ast.stmt) -> tuple[ast.AST, int]:
    """Where a statement stands: in the body of what is around it, or in its `else`."""
    around = source.parents[statement]
    if isinstance(around, ast.ExceptHandler | ast.match_case):
        return around, 0
    lists = (value for _, value in ast.iter_fields(around) if isinstance(value, list) and value)
    starts = (one[0] for one in lists if isinstance(one[0], ast.stmt))
    return around, sum(_start(first) <= _start(statement) for first in starts)


def holds(source: Source, node: ast.expr, place: ast.AST) -> bool:
    """Whether an expression has the same value in the statement of a place as where it stands.

    Every name in it must be bound before both, and not be given anew between them; and it must not
    draw random numbers.
    """
    here = source.nodes.scope(node).function
    if source.nodes.scope(place).function is not here:
        return False
    first, last = sorted(_start(source.nodes.statement(one)) for one in (node, place))
    for part in ast.walk(node):
        if draws(source, part):
            return False
        if isinstance(part, ast.Name):
            scope = source.nodes.owner(part)
            if scope is not here:
                continue
            count = scope.before(part.id, first)
            if scope.before(part.id, last) != count or (not count and scope.bindings[part.id]):
                return False
    return True


def _start(statement: ast.stmt) -> Place:
    return statement.lineno, statement.col_offset
