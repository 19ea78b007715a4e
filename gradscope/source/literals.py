"""Where a program sets a number that it reads elsewhere by a name, an attribute or a key."""

import ast
from collections.abc import Iterator

from gradscope.source.arguments import arguments_of, called, defaults_of
from gradscope.source.meaning import binding
from gradscope.source.text import Source
from gradscope.source.tree import last_name

_NAMESPACES = ("Namespace", "SimpleNamespace", "dict")


def number(text: Source, node: ast.expr) -> ast.Constant | None:
    """The literal that a factor is, by its sign and its name."""
    seen: set[ast.AST] = set()
    given: ast.expr | None = node
    while isinstance(given, ast.UnaryOp | ast.Name) and given not in seen:
        seen.add(given)  # two names may be given each other
        given = _given(text, given) if isinstance(given, ast.Name) else given.operand
    is_number = isinstance(given, ast.Constant) and type(given.value) in (int, float)
    return given if is_number and isinstance(given, ast.Constant) and given.value else None


def constant(text: Source, node: ast.expr) -> float | None:
    """The value of a literal, of a name for one, or of an attribute that is given one alone."""
    given = [*_attributes(text, node.attr)] if isinstance(node, ast.Attribute) else [node]
    found = number(text, given[0]) if len(given) == 1 else None
    return float(found.value) if found is not None else None  # type: ignore[arg-type]


def setting(text: Source, node: ast.expr, value: float) -> ast.expr:
    """The literal from which an expression has had its value: of a name, of an option of the
    command line, a field of a class, a key of a dict. The expression itself where the text does not
    tell one, or one of another value, which somebody has set otherwise."""
    found = [node]
    if isinstance(node, ast.Attribute):
        found = [*_defaults(text, node.attr), *_attributes(text, node.attr)]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        found = list(_items(text, node.slice.value))
    literal = number(text, found[0]) if len(found) == 1 else None
    return literal if literal is not None and literal.value == value else node


def _defaults(text: Source, name: str) -> Iterator[ast.expr]:
    """Of the options that argparse reads into an attribute."""
    for call in text.nodes.every(ast.Call):
        if called(call) == "add_argument":
            given = {key.arg: key.value for key in call.keywords}
            flags = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
            first = next((one for one in flags if one.startswith("--")), "".join(flags[:1]))
            reads = str(getattr(given.get("dest"), "value", first))
            if reads.lstrip("-").replace("-", "_") == name:
                yield given.get("default", call)


def _attributes(text: Source, name: str) -> Iterator[ast.expr]:
    """What is given to an attribute of that name, whatever it is of."""
    for target, value in text.nodes.given():
        of_class = isinstance(text.parents[text.nodes.statement(target)], ast.ClassDef)
        is_read_so = isinstance(target, ast.Attribute) or of_class
        if is_read_so and last_name(target) == name:
            yield value
    yield from _keywords(text, name)


def _items(text: Source, key: object) -> Iterator[ast.expr]:
    """What is given to a key, whatever dict it is of."""
    for made in text.nodes.every(ast.Dict):
        pairs = zip(made.keys, made.values, strict=True)
        yield from (value for at, value in pairs if getattr(at, "value", None) == key)
    for target, value in text.nodes.given():
        if isinstance(target, ast.Subscript) and getattr(target.slice, "value", None) == key:
            yield value
    yield from _keywords(text, key)


def _keywords(text: Source, name: object) -> Iterator[ast.expr]:
    for call in text.nodes.every(ast.Call):
        if called(call) in _NAMESPACES:
            yield from (key.value for key in call.keywords if key.arg == name)


def _given(text: Source, name: ast.Name) -> ast.expr | None:
    """What a name was given; for a parameter its default, where no call of the file gives it."""
    made = binding(text, name)
    function = made.statement if made is not None else None
    if made is None or not isinstance(function, ast.FunctionDef):
        return made.value if made is not None else None
    calls = (one for one in text.nodes.every(ast.Call) if called(one) == function.name)
    if any(_may_give(function, one, name.id) for one in calls):
        return None
    return defaults_of(function).get(name.id)


def _may_give(function: ast.FunctionDef, call: ast.Call, name: str) -> bool:
    is_open = any(isinstance(one, ast.Starred) for one in call.args)
    is_open |= any(key.arg is None for key in call.keywords)
    return is_open or name in arguments_of(function, call)
