"""Where the user's source has written what a run has shown: what stands several times in a list,
and the number that a layer was given."""

import ast
from collections.abc import Collection

from gradscope.facts import Location
from gradscope.record.definitions import span_in
from gradscope.record.sites import Site, resolve
from gradscope.source import Source, binding, definition, expression, parsed
from gradscope.source.arguments import argument, defaults_of
from gradscope.source.literals import setting
from gradscope.source.repetitions import given_twice, repetition
from gradscope.source.spans import statement_at
from gradscope.source.tree import covers, last_name

_NAME = "momentum"
_POSITION = 2  # BatchNorm2d(num_features, eps, momentum)


def repeated_at(place: Location | None) -> Location | None:
    """Where the statement at a place gets one object several times: in it, in what a name stands
    for, or in a function; the place itself where the text does not tell."""
    source = parsed(place.file) if place is not None else None
    if place is None or source is None:
        return place
    statement = statement_at(source, place)
    node = repetition(source, statement) if statement is not None else None
    return _place_in(source, place, node) if node is not None else place


def doubled_at(place: Location, names: Collection[str]) -> Location | None:
    """Where what the call at a place is given lists the parameters of a module a second time, by
    one of these last names."""
    source = parsed(place.file)
    call = expression(source, place) if source is not None else None
    node = given_twice(source, call) if source is not None and isinstance(call, ast.Call) else None
    if source is None or node is None or last_name(node) not in names:
        return None
    return _place_in(source, place, node)


def momentum_at(user: Site, momentum: float) -> Location | None:
    """Where the number is written that a BatchNorm was given as momentum, which is made there: also
    through names, and arguments of the functions around it. Else the argument; None where there is
    none."""
    name, found = _NAME, None
    position: int | None = _POSITION
    for code, lasti in user:
        place = resolve(code, lasti)
        source = parsed(place.file)
        call = expression(source, place) if source is not None else None
        if source is None or not isinstance(call, ast.Call):
            break
        value = argument(call, name, position) or _held_by(source, call, name)
        if value is None:
            break
        given = binding(source, value) if isinstance(value, ast.Name) else None
        function = given.statement if given is not None else None
        if not isinstance(value, ast.Name) or not isinstance(function, ast.FunctionDef):
            literal = setting(source, value, momentum)
            is_its_own = not isinstance(value, ast.Name) or all(
                _is_momentum(source, one) for one in source.nodes.reads(value)
            )
            return _place_in(source, place, literal if is_its_own else value)
        # What a caller gives in its place is found below.
        default = defaults_of(function).get(value.id)
        is_number = isinstance(default, ast.Constant) and default.value == momentum
        found = _place_in(source, place, default if default and is_number else value)
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        at = names.index(value.id) - (names[0] == "self") if value.id in names else None
        name, position = value.id, at
    return found


def _held_by(source: Source, call: ast.Call, name: str) -> ast.expr | None:
    """In `norm = partial(nn.BatchNorm2d, momentum=0.99)` for `norm(n)`, and in the dictionary of
    `nn.BatchNorm2d(n, **kept)`."""
    for one in (call.func, *(key.value for key in call.keywords if key.arg is None)):
        match definition(source, one):
            case ast.Call() as made:
                return argument(made, name)
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return next((v for key, v in pairs if getattr(key, "value", "") == name), None)
    return None


def _is_momentum(source: Source, read: ast.expr) -> bool:
    around = source.parents[read]
    is_positional = isinstance(around, ast.Call) and "BatchNorm" in last_name(around.func)
    return is_positional or (isinstance(around, ast.keyword) and around.arg == _NAME)


def _place_in(source: Source, near: Location, node: ast.expr) -> Location:
    """Of an expression in the file of a place."""
    function = source.nodes.function(node)
    is_near = any(covers(one, near.line) for one in (function,) if not isinstance(one, ast.Module))
    name = near.function if is_near else getattr(function, "name", "<module>")
    return span_in(near.file, name, node)
