"""Where the user's source defines a layer or returns a value, and what stands around a line."""

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import CodeType
from typing import Any, TypeVar

import torch

from gradscope.facts import Location
from gradscope.record.sites import USER, Site, kind_of, resolve, shown_path
from gradscope.source import Source, expression
from gradscope.source import definition as definition_of
from gradscope.source.arguments import called
from gradscope.source.spans import statement_at
from gradscope.source.text import cell_of, characters
from gradscope.source.tree import Op, covers, last_name, names_in, parts

Node = TypeVar("Node", bound=ast.AST)
_CALLS = 4  # functions that hand data on; one may call itself


@lru_cache(maxsize=64)
def source_of(file: str) -> Source | None:
    """What Python itself shows of a file: also what was typed into a notebook."""
    source = Source(file, "".join(linecache.getlines(file)))
    try:
        assert source.tree
    except (SyntaxError, ValueError, RecursionError):
        return None
    return source


def span(code: CodeType, node: ast.expr | ast.stmt, end_col: int | None = None) -> Location:
    """Of a node in the source of a function's code; `end_col` cuts it off in its first line."""
    return span_in(code.co_filename, code.co_qualname, node, end_col)


def span_in(
    file: str, function: str, node: ast.expr | ast.stmt, end_col: int | None = None
) -> Location:
    """The same, where only the names of the file and of the function are known."""
    source = source_of(file)
    assert source is not None and node.end_lineno is not None and node.end_col_offset is not None
    end_line = node.end_lineno if end_col is None else node.lineno
    return Location(
        file=shown_path(file),
        line=node.lineno,
        col=characters(source.line(node.lineno), node.col_offset),
        end_line=end_line,
        end_col=characters(source.line(end_line), end_col or node.end_col_offset),
        function=function,
        cell=cell_of(file) is not None,
    )


def every(code: CodeType, kind: type[Node]) -> Iterator[tuple[Source, Node]]:
    """The nodes of a kind in the file of a function's code."""
    source = source_of(code.co_filename)
    yield from ((source, node) for node in source.nodes.every(kind)) if source else ()


def function_of(code: CodeType) -> ast.FunctionDef | None:
    """Where the function is defined whose code it is."""
    for _, node in every(code, ast.FunctionDef):
        starts = (node.lineno, *(one.lineno for one in node.decorator_list))
        if node.name == code.co_name and code.co_firstlineno in starts:
            return node
    return None


def body_of(code: CodeType) -> ast.AST | None:
    """What is written of code: of a module all of its file, of a lambda its expression."""
    if code.co_name == "<module>":
        source = source_of(code.co_filename)
        return source.tree if source is not None else None
    if code.co_name != "<lambda>":
        return function_of(code)
    lambdas = (node for _, node in every(code, ast.Lambda))
    return next((one for one in lambdas if one.lineno == code.co_firstlineno), None)


def definition(
    path: Sequence[tuple[str, torch.nn.Module]],
) -> tuple[Location | None, Location | None]:
    """Where the layer was assigned in the `__init__` of the module that holds it, and that
    module's `forward`. The layer's own attribute may be a list's index: its holder's counts."""
    for depth in range(len(path) - 1, 0, -1):
        attribute, parent = path[depth][0], type(path[depth - 1][1])
        made_by = (vars(kind).get("__init__") for kind in parent.__mro__)
        for found in _set_by(made_by, attribute):
            return span(*found), head(_user_code(parent.forward))
    return None, None


def attribute(kind: type, name: str) -> Location | None:
    """Where a method of a class of the user's first sets an attribute: to more than a constant, as
    None before there is a value, where one does."""
    found = _set_in(kind, name)
    return span(*found[0]) if found else None


def attribute_within(kind: type, name: str, calls: Sequence[Location]) -> Location | None:
    """The only statement that sets it in one of the functions from which the calls were made."""
    functions = {(one.file, one.function) for one in calls}
    found = [span(*one) for one in _set_in(kind, name)]
    found = [one for one in found if (one.file, one.function) in functions]
    return found[0] if len(found) == 1 else None


def _set_in(kind: type, name: str) -> list[tuple[CodeType, ast.Assign | ast.AnnAssign]]:
    methods = (one for owner in kind.__mro__ for one in vars(owner).values())
    return sorted(_set_by(methods, name), key=lambda one: isinstance(one[1].value, ast.Constant))


def kept_at(function: Any, name: str) -> Location | None:
    """Where the forward of a custom Function sets an attribute of its ctx."""
    methods = (getattr(function, one, None) for one in ("forward", "setup_context"))
    return next((span(*one) for one in _set_by(methods, name)), None)


def _set_by(
    functions: Iterable[Any], name: str
) -> Iterator[tuple[CodeType, ast.Assign | ast.AnnAssign]]:
    """The statements of the user's functions among these that set an attribute of that name, each
    with the code that it is in."""
    for code in filter(None, map(_user_code, functions)):
        for node in parts(function_of(code), ast.stmt):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                given = (one.attr for target in targets for one in parts(target, ast.Attribute))
                if name in given:
                    yield code, node


def variable(code: CodeType, name: str) -> Location | None:
    """Where code first gives a variable of its own a value."""
    within = function_of(code)
    for source, node in every(code, ast.Assign):
        is_own = source.nodes.function(node) is (within or source.tree)
        if is_own and any(name in names_in(target) for target in node.targets):
            return span(code, node)
    return None


def data_at(code: CodeType, name: str) -> tuple[Location, str] | None:
    """Where what a variable of code holds is given a name for the first time, and by which: also in
    a function of the file that does no more with it than to return it. None where the text does
    not tell."""
    source, function = source_of(code.co_filename), function_of(code)
    scope: ast.AST | None = function or (source.tree if source is not None else None)
    found: tuple[Location, str] | None = None
    for _ in range(_CALLS):
        if source is None or not isinstance(scope, ast.FunctionDef | ast.Module) or not scope.body:
            break
        names = source.nodes.scope(scope.body[0])
        bound = [one.statement for one in names.bindings.get(name, ())]
        made = bound[-1] if bound and (len(bound) == 1 or bound[-1] in scope.body) else None
        is_only = found is None or len(names.reads[name]) == 1
        if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not is_only:
            break
        found = span_in(code.co_filename, getattr(scope, "name", "<module>"), made), name
        target, call = made.targets[0], made.value
        elements = target.elts if isinstance(target, ast.Tuple) else [target]
        scope = _function_called(source, call) if isinstance(call, ast.Call) else None
        returns = [one.value for one in parts(scope, ast.Return) if one.value is not None]
        given: list[ast.expr] = returns if len(returns) == 1 else []
        if len(elements) > 1:
            given = given[0].elts if given and isinstance(given[0], ast.Tuple) else []
        own = dict(zip(map(last_name, elements), given, strict=False)).get(name)
        if not isinstance(own, ast.Name):
            break
        name = own.id
    return found


def _function_called(source: Source, call: ast.Call) -> ast.FunctionDef | None:
    """The only function of the file that has the name which is called."""
    named = [one for one in source.nodes.every(ast.FunctionDef) if one.name == called(call)]
    return named[0] if len(named) == 1 else None


def _user_code(function: Any) -> CodeType | None:
    code = getattr(function, "__code__", None)
    return code if code is not None and kind_of(code) == USER else None


def head(code: CodeType | None) -> Location | None:
    """The `def` of a function and its name."""
    node = function_of(code) if code else None
    if code is None or node is None:
        return None
    return span(code, node, node.col_offset + len(f"def {node.name}"))


def decorated_at(code: CodeType, decorator: str) -> Location | None:
    """The decorator of that name of a function."""
    node, source = function_of(code), source_of(code.co_filename)
    for one in node.decorator_list if node is not None and source is not None else ():
        if source is not None and (source.names.dotted(one) or "").endswith(decorator):
            return span(code, one)
    return None


def kept_from(user: Site, beside: Site) -> tuple[str, tuple[Location, ...]]:
    """The user's lines, innermost first, from the one on that keeps what the innermost one makes,
    and does not hand it on to who has called its function; as those `beside` it do not. With the
    last name of what keeps it."""
    theirs = [code for code, _ in beside]
    places = tuple(resolve(*one) for one in user)
    for at, ((code, _), place) in enumerate(zip(user, places, strict=True)):
        source, made = _statement(code, place)
        target = made.targets[0] if isinstance(made, ast.Assign) else None
        function = source.nodes.function(made) if source and made else None
        own = {target.id} if isinstance(target, ast.Name) else set[str]()
        gives = [one for one in parts(function, ast.Return) if names_in(one) & own or one is made]
        if gives and code not in theirs:
            continue
        for one in parts(function, ast.Assign) if own else ():
            is_kept = isinstance(one.value, ast.Name) and one.value.id in own
            if is_kept and one.lineno > place.line and not isinstance(one.targets[0], ast.Name):
                return _kept_as(one.targets[0]), (span(code, one), *places[at + 1 :])
        return _kept_as(target), places[at:]
    return "", places


def _kept_as(target: ast.expr | None) -> str:
    while isinstance(target, ast.Subscript):
        target = target.value
    return last_name(target)


def names_at(user: Site) -> set[str]:
    """The names, and those of attributes, in the user's lines."""
    lines = (_statement(code, resolve(code, lasti))[1] for code, lasti in user)
    read = (parts(one, kind) for one in lines for kind in (ast.Name, ast.Attribute))
    return {last_name(node) for nodes in read for node in nodes}


def _statement(code: CodeType, place: Location) -> tuple[Source | None, ast.stmt | None]:
    """The innermost statement at a place in a function's code."""
    source = source_of(code.co_filename)
    return source, statement_at(source, replace(place, file=source.file)) if source else None


def written_at(code: CodeType, lasti: int) -> tuple[Source | None, Op | None]:
    """What is written where an instruction of a function's code stands."""
    source, place = source_of(code.co_filename), resolve(code, lasti)
    return source, expression(source, replace(place, file=source.file)) if source else None


def returned(function: Callable[..., Any], position: int, *, only: bool = False) -> Location | None:
    """What a function's last return statement returns, of a tuple the part at `position`. `only`:
    if it has no other."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    found = parts(function_of(code) if code else None, ast.Return)
    returns = [one for one in found if one.value]
    last = max(returns, key=lambda one: one.lineno, default=None)
    if code is None or last is None or (only and len(returns) > 1):
        return None
    expression = _expression(last, position) or last.value
    assert expression is not None
    return span(code, expression)


def given_at(code: CodeType, lasti: int) -> Location:
    """What the target of an assignment is given that an instruction stores into; where the text
    does not tell that, its place."""
    source, node = written_at(code, lasti)
    for target, value in source.nodes.given() if source is not None else ():
        if target is node:
            return span(code, value)
    return resolve(code, lasti)


def widened(code: CodeType, lasti: int, position: int) -> Location | None:
    """From an instruction to the whole expression that its statement returns (of a tuple, the part
    at `position`) or assigns."""
    place, source = resolve(code, lasti), source_of(code.co_filename)
    if source is None:
        return None
    lines = (place.line, place.end_line)
    for node in parts(source.tree, ast.expr):
        if (node.lineno, node.end_lineno) == lines:
            expression = _expression(source.nodes.statement(node), position)
            return span(code, expression) if expression else None
    return None


_LOOPS = ast.For | ast.While | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp


def is_in_loop(code: CodeType, lasti: int) -> bool:
    """Whether an instruction may run more than once in one call, or the text does not tell."""
    place, function = resolve(code, lasti), function_of(code)
    if function is None:
        return True
    loops = (one for one in ast.walk(function) if isinstance(one, _LOOPS))
    return any(covers(one, place.line) for one in loops)


def _expression(found: ast.stmt, position: int) -> ast.expr | None:
    match found:
        case ast.Return(value=ast.Tuple(elts=elements)):
            return elements[position] if position < len(elements) else None
        case ast.Assign(targets=[ast.Name() | ast.Subscript()]) | ast.Return() | ast.Expr():
            return found.value
        case ast.AugAssign() | ast.AnnAssign():
            return found.value
    return None


def frozen_at(code: CodeType) -> Location | None:
    """The last statement of the file that takes `requires_grad` from something. No op is run when
    an attribute is set: where that is written has to be read."""
    found: list[ast.stmt] = []
    for _, node in (*every(code, ast.Assign), *every(code, ast.Expr)):
        match node:
            case ast.Assign([ast.Attribute(attr="requires_grad")], ast.Constant(False)) | ast.Expr(
                ast.Call(ast.Attribute(attr="requires_grad_"), [ast.Constant(False)])
            ):
                found.append(node)
    return span(code, max(found, key=lambda one: one.lineno)) if found else None


def updated_at(code: CodeType, name: str) -> Location | None:
    """Where code gives a name a value computed from its gradient: `w = w - 0.1 * w.grad`."""
    for source, node in every(code, ast.Assign):
        if [source.of(one) for one in node.targets] == [name] and any(
            isinstance(one, ast.Attribute) and source.of(one) == f"{name}.grad"
            for one in ast.walk(node.value)
        ):
            return span(code, node)
    return None


def made_at(code: CodeType, name: str, read: Location) -> Location | None:
    """Where the value of a name is computed that is read in the lines of a place."""
    for source, node in every(code, ast.Name):
        if node.id == name and read.line <= node.lineno <= read.end_line:
            made = definition_of(source, node)
            return span(code, made) if made is not None else None
    return None


def leaf_at(code: CodeType, variables: Mapping[str, Any]) -> Location | None:
    """Where the first of the variables is computed whose gradient the code reads: a tensor that
    does not require one."""
    for source, node in every(code, ast.Attribute):
        name = node.value
        if node.attr != "grad" or not isinstance(name, ast.Name):
            continue
        value = variables.get(name.id)
        if isinstance(value, torch.Tensor) and not value.requires_grad:
            made = definition_of(source, name)
            if made is not None:
                return span(code, made)
    return None
