"""A state that is kept from step to step in half precision, as an optimizer's running squares: what
is added to it underflows, and so does what is computed with it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.dtypes import HALF, wider
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.splice import keyword
from gradscope.repair.write.statements import rebound
from gradscope.repair.write.uses import calls_around
from gradscope.rules.wording import phrases, proposals
from gradscope.source import Source
from gradscope.source.arguments import argument, arguments_of, called, is_in_place, spelled

_LIKE = ("zeros_like", "ones_like", "full_like", "empty_like")
_OF_PARAMETERS = ("grad", "data")  # attributes of torch's: they keep the dtype of their parameter


def state_widened(culprit: Culprit, request: ask.WiderState) -> Iterator[Candidate]:
    """The state and the gradient that goes into it in a wider dtype; nothing where no state of the
    file takes part in the culprit."""
    if culprit.dtype not in HALF or culprit.node is None:
        return
    wide, method = wider(culprit.dtype)
    value = _Value(culprit.source)
    value.follow(culprit.node)
    edits = list(filter(None, (_made_wide(culprit, one, wide, method) for one in value.makers)))
    if not edits:
        return
    function = culprit.source.nodes.function(culprit.node)
    own = {name for where, name in value.given if where is function}
    edits += rebound(culprit, own, f"{{x}}.{method}")
    others = [one for (where, _), one in value.given.items() if where is not function]
    casts = (*value.gradients, *others)
    edits += [culprit.replace(one, f"{culprit.text(one)}.{method}") for one in casts]
    names = phrases.listed(list(dict.fromkeys(value.makers.values())))
    yield Candidate(proposals.WIDE_STATE.format(state=names, dtype=wide), tuple(edits))


def _made_wide(culprit: Culprit, made: ast.Call, wide: str, method: str) -> Edit | None:
    if called(made) == "clone":
        return culprit.replace(made, f"{culprit.text(made)}.{method}")
    if argument(made, "dtype") is not None:
        return None
    return keyword(culprit.source, made, "dtype", culprit.torch(f"torch.{wide}"))


@dataclass
class _Value:
    """What a value is made of, through names, parameters and what is kept under a key or in an
    attribute. `makers` are the calls that make such a state, each with its key; `gradients` the
    reads of a parameter's gradient, and `given` those that a function is given, by its parameter.
    """

    source: Source
    makers: dict[ast.Call, str] = field(default_factory=dict)
    gradients: list[ast.expr] = field(default_factory=list)
    given: dict[tuple[ast.FunctionDef, str], ast.expr] = field(default_factory=dict)
    _goes_into: defaultdict[object, list[ast.expr]] = field(init=False)
    _seen: set[ast.AST] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._goes_into = defaultdict(list)
        for place, value in (*_kept(self.source), *_written(self.source)):
            self._goes_into[self._known_by(place)].append(value)

    def follow(self, node: ast.AST, key: str = "") -> None:
        """`key` is that under which the value is kept, of one that is a state."""
        if node in self._seen:
            return
        self._seen.add(node)
        if key and isinstance(node, ast.Call) and _makes(self.source, node):
            self.makers[node] = key
            return
        if isinstance(node, ast.expr) and _is_gradient(node):
            self.gradients.append(node)
            return
        place = self._known_by(node)
        for value in self._goes_into[place] if place is not None else ():
            self.follow(value, place if isinstance(place, str) else key)
        if isinstance(node, ast.Name):
            self._named(node, key)
        for part in ast.iter_child_nodes(node):
            self.follow(part, key)

    def _named(self, name: ast.Name, key: str) -> None:
        for binding in self.source.nodes.owner(name).bindings.get(name.id, ()):
            made = binding.statement
            if binding.value is not None:
                self.follow(binding.value, key)
            elif isinstance(made, ast.For):
                self.follow(made.iter, key)
            elif isinstance(made, ast.FunctionDef):
                given = (arguments_of(made, call) for call in calls_around(self.source, name))
                for value in filter(None, (one.get(name.id) for one in given)):
                    if _is_gradient(value):
                        self.given[made, name.id] = value
                    else:
                        self.follow(value, key)

    def _known_by(self, place: ast.AST | str) -> object:
        """What tells that two places hold the same: the key, the attribute, or whose name it is."""
        if isinstance(place, ast.Name):
            return self.source.nodes.owner(place), place.id
        return place if isinstance(place, str) else _key(place)


def _kept(source: Source) -> Iterator[tuple[ast.expr | str, ast.expr]]:
    """What is kept under a key or in an attribute."""
    for target, value in source.nodes.given():
        if not isinstance(target, ast.Name):
            yield target, value
    for call in source.nodes.every(ast.Call):
        match call:
            case ast.Call(func=ast.Name("dict") | ast.Attribute(attr="update")):
                yield from ((one.arg, one.value) for one in call.keywords if one.arg)
            case ast.Call(
                func=ast.Attribute(attr="setdefault"),
                args=[ast.Constant(value=str() as key), value],
            ):
                yield key, value
            case ast.Call(func=ast.Attribute(value=held, attr="append"), args=[value]):
                yield held, value
    for made in source.nodes.every(ast.Dict):
        for one, value in zip(made.keys, made.values, strict=True):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value, value


def _written(source: Source) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is written into a tensor in place: `m.mul_(beta).add_(g)`, `m += g`."""
    for one in source.nodes.every(ast.AugAssign):
        yield one.target, one.value
    for call in source.nodes.every(ast.Call):
        held: ast.expr = call
        while isinstance(held, ast.Call) and _is_method_in_place(held):
            assert isinstance(held.func, ast.Attribute)
            held = held.func.value
        if held is not call:
            yield from ((held, one) for one in call.args)


def _is_method_in_place(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and is_in_place(call)


def _key(node: ast.AST) -> str | None:
    """`sq` of `state["sq"]`, of `state.get("sq")`, of `self.sq` and of `self.sq[i]`."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
        case ast.Subscript(value=held):
            return _key(held)
        case ast.Call(
            func=ast.Attribute(attr="get" | "setdefault"),
            args=[ast.Constant(value=str() as key), *_],
        ):
            return key
        case ast.Attribute(attr=name) if name not in _OF_PARAMETERS:
            return name
    return None


def _makes(source: Source, call: ast.Call) -> bool:
    return spelled(source, call).name in (*_LIKE, "clone")


def _is_gradient(node: ast.expr) -> bool:
    """`p.grad`, with the `.data` and `.detach()` behind it."""
    while True:
        match node:
            case ast.Attribute(attr="grad"):
                return isinstance(node.ctx, ast.Load)
            case ast.Attribute(value=inner, attr="data"):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="detach"), args=[]):
                node = inner
            case _:
                return False
