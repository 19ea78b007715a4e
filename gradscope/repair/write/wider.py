"""A wider dtype where a number does not fit into its own, where a bound is lost in it (GS209), and
for a state that is kept from step to step, as an optimizer's running squares: what is added to it
underflows in half precision, and so does what is computed with it; a count or a sum overflows."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.dtypes import HALF, wider
from gradscope.ops.traits import Trait, has
from gradscope.repair.write.culprit import ATOMS, Candidate, Culprit
from gradscope.repair.write.splice import keyword, spliced
from gradscope.repair.write.statements import rebound, within
from gradscope.repair.write.uses import calls_around
from gradscope.rules.wording import phrases, proposals
from gradscope.source import Source, definition
from gradscope.source.arguments import argument, arguments_of, called, is_in_place, spelled
from gradscope.source.literals import constant
from gradscope.source.spans import ancestors
from gradscope.source.tree import names_in, parts

TENSORS = frozenset(
    "self other mat1 mat2 tensor1 tensor2 x1 x2 target weight query key value".split()
)
BACK = {"float16": "half()", "bfloat16": "bfloat16()", "float32": "float()"}
_CASTS = {**BACK, "float64": "double()"}


def widened(culprit: Culprit, request: ask.WiderDtype) -> Iterator[Candidate]:
    """A wider dtype for all that the culprit's function is given, else for its operands alone:
    where one sum over half numbers overflows, the next one is close."""
    wide, method = wider(culprit.dtype)
    tensors = [
        node
        for role, node in culprit.operands.items()
        if role in TENSORS and not isinstance(node, ast.Constant)
    ]
    if culprit.finding.measured.autocast:
        yield from _outside_of_autocast(culprit, tensors, wide, method)
    edits = rebound(culprit, set().union(*map(names_in, tensors)), f"{{x}}.{method}")
    if edits:
        yield from within_function(culprit, edits, wide)
        yield Candidate(f"compute what follows in {wide}", edits)
    nodes = culprit.source.nodes
    for node in tensors[:1]:
        meaning = definition(culprit.source, node)
        if meaning is not None and nodes.function(meaning) is not nodes.module:
            text = f"{culprit.text(meaning)}.{method}"
            yield culprit.written(f"compute what follows in {wide}", meaning, text)
    for chosen in (tensors[:1], tensors):
        if chosen:
            casts = (culprit.replace(node, f"{culprit.text(node)}.{method}") for node in chosen)
            title = proposals.WIDER.format(op=phrases.spelled(culprit.finding.op), dtype=wide)
            yield Candidate(title, tuple(casts))
    yield from _widened_before(culprit, wide, method)
    if culprit.dtype == "float16":
        yield from _bfloat16(culprit)


def _outside_of_autocast(
    culprit: Culprit, tensors: list[ast.expr], wide: str, method: str
) -> Iterator[Candidate]:
    """The statement alone in the wider dtype, in a block where nothing is cast back."""
    source, statement = culprit.source, culprit.statement
    nodes = tensors or (culprit.call.args if culprit.call is not None else [])
    kinds = (one.device.partition(":")[0] for one in culprit.finding.tensors if one.device)
    kind = next(kinds, "")
    if not nodes or not kind or statement is None or hasattr(statement, "body"):
        return
    text = spliced(source, (culprit.replace(one, f"{culprit.text(one)}.{method}") for one in nodes))
    start, end = source.extent(statement)
    text = text[start : end + len(text) - len(source.text)]
    opening = f'with {culprit.torch("torch.autocast(")}"{kind}", enabled=False)'
    title = f"leave autocast for this, and compute it in {wide}"
    yield Candidate(title, (source.replaced(statement, within(source, opening, statement, text)),))


def within_function(culprit: Culprit, widening: tuple[Edit, ...], wide: str) -> Iterator[Candidate]:
    """The wider dtype inside of the function alone, whose caller gets the dtype that it had."""
    back = BACK.get(culprit.dtype)
    where = culprit.source.nodes.function(culprit.node) if culprit.node is not None else None
    if back is None or where is None:
        return
    values = [node.value for node in parts(where, ast.Return)]
    if len(values) == 1 and (value := values[0]) is not None:
        narrowed = culprit.replace(value, f"({culprit.source.of(value)}).{back}")
        function = getattr(where, "name", "this")
        title = f"compute `{function}` in {wide}, and give back {culprit.dtype}"
        yield Candidate(title, (*widening, narrowed))


def converted(culprit: Culprit, request: ask.CastOperand) -> Iterator[Candidate]:
    """`x.float()` where the name of the operand is given its value, else where the op reads it."""
    source, cast = culprit.source, _CASTS.get(request.wanted)
    reads = [one for one in parts(culprit.node, ast.expr) if source.of(one) == request.name]
    read = next(iter(reads), culprit.operands.get(request.role))
    if cast is None or read is None:
        return
    for node in (definition(source, read), read):
        if node is not None:
            text = f"{culprit.text(node)}.{cast}"
            yield culprit.written(f"convert it to {request.wanted}", node, text)


def _widened_before(culprit: Culprit, wide: str, method: str) -> Iterator[Candidate]:
    """A wider dtype where the operand was flushed to 0, which is before the culprit reads it."""
    for node in culprit.related("birth"):
        found = spelled(culprit.source, node)
        if (first := found.first) is not None and not isinstance(first, ast.Constant):
            title = proposals.WIDER.format(op=found.name, dtype=wide)
            yield culprit.written(title, first, f"{culprit.text(first)}.{method}")


def _bfloat16(culprit: Culprit) -> Iterator[Candidate]:
    """bfloat16 wherever the file says float16: as small, with the range of float32."""
    edits = [
        culprit.source.renamed(node, "bfloat16")
        for node in culprit.source.nodes.every(ast.Attribute)
        if _is_half(culprit.source, node)
    ]
    yield Candidate("use bfloat16, which has the range of float32", tuple(edits))


def _is_half(source: Source, node: ast.Attribute) -> bool:
    """Whether it is `torch.float16`, or what is called in `x.half()`."""
    call = source.parents.get(node)
    is_called = node.attr == "half" and isinstance(call, ast.Call) and call.func is node
    return is_called or source.names.dotted(node) in ("torch.float16", "torch.half")


# What torch computes in the dtype of its operands, under autocast too.
_COMPUTES = frozenset(
    "sigmoid softmax tanh erf exp expm1 log log1p sqrt rsqrt pow abs neg add sub mul div reciprocal"
    " sum mean prod var std norm normalize cosine_similarity pairwise_distance clamp relu softplus"
    " sin cos minimum maximum max min amax amin squeeze unsqueeze".split()
)


def widened_bound(culprit: Culprit, request: ask.WidenBound) -> Iterator[Candidate]:
    """`torch.sigmoid(logits.float()).clamp(...)`: the cast where the low precision comes in, which
    may be in the function that calls. What has to go on in the dtype gets it back behind that."""
    wide, method = wider(culprit.dtype)
    source, title = culprit.source, f"compute what follows in {wide}"
    use = next(culprit.related("use"), None)
    reads = spelled(source, use).positional if use is not None else ()
    first = spelled(source, culprit.node).positional[:1]
    made = [one for one in map(culprit.at, request.made) if one is not None]
    begun = [*_entering(source, *(made or (culprit.node,)))]
    here = [*_entering(source, culprit.node)]
    # Its other operand has a gradient of its own that is as large as the bound is small.
    both = [*begun, *_entering(source, *reads)] if len(reads) > 1 else begun
    ways = (both, begun, here, here[:1], first)
    for nodes in dict.fromkeys(tuple(dict.fromkeys(one)) for one in ways):
        casts = {one: f"{culprit.text(one)}.{method}" for one in nodes}
        edits = tuple(culprit.replace(one, text) for one, text in casts.items())
        yield Candidate(title, edits)
        if not culprit.finding.measured.autocast:
            yield from within_function(culprit, edits, wide)
            yield from _narrowed(culprit, use, casts, wide)


def _narrowed(
    culprit: Culprit, use: ast.expr | None, casts: dict[ast.expr, str], wide: str
) -> Iterator[Candidate]:
    """Up to the end of the statement in which the op stands that breaks."""
    source, back = culprit.source, BACK.get(culprit.dtype)
    statement = source.nodes.statement(use) if use is not None else None
    whole = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
    if back is None or whole is None:
        return
    parts = {one: text for one, text in casts.items() if one in ast.walk(whole)}
    edits = (culprit.replace(one, text) for one, text in casts.items() if one not in parts)
    narrow = culprit.replace(whole, f"({source.written(whole, parts)}).{back}")
    title = f"compute this in {wide}, and give back {culprit.dtype}"
    yield Candidate(title, (*edits, narrow))


def _entering(source: Source, *nodes: ast.AST | None) -> Iterator[ast.expr]:
    """What goes into the ops that have made the values of expressions, also line by line."""
    for node in nodes:
        made = definition(source, node) or node
        op = spelled(source, made)
        if op.name in _COMPUTES:
            yield from _entering(source, *op.positional)
        elif isinstance(node, ATOMS) and constant(source, node) is None:
            if not isinstance(getattr(node, "ctx", None), ast.Store):  # `x += eps`
                yield node


_MAKE = ("zeros_like", "ones_like", "full_like", "empty_like", "clone")
_OF_PARAMETERS = ("grad", "data")  # attributes of torch's: they keep the dtype of their parameter


def state_widened(culprit: Culprit, request: ask.WiderState) -> Iterator[Candidate]:
    """The state and the gradient that goes into it in a wider dtype; nothing where no state of the
    file takes part in the culprit."""
    if culprit.dtype not in HALF or culprit.node is None:
        return
    wide, method = wider(culprit.dtype)
    value = _Value(culprit.source)
    value.follow(culprit.node)
    edits = [_made_wide(culprit, one, wide, method) for one in value.makers]
    names = ((one, wide if culprit.dotted(one) else method[:-2]) for one in value.halves)
    edits += [culprit.source.renamed(one, name) for one, name in names]
    if not edits:
        return
    function = culprit.source.nodes.function(culprit.node)
    own = {name for where, name in value.given if where is function}
    edits += rebound(culprit, own, f"{{x}}.{method}")
    others = [one for (where, _), one in value.given.items() if where is not function]
    casts = (*value.gradients, *others)
    edits += [culprit.replace(one, f"{culprit.text(one)}.{method}") for one in casts]
    states = dict.fromkeys((*value.makers.values(), *value.halves.values()))
    title = proposals.WIDE_STATE.format(state=phrases.listed(list(states)), dtype=wide)
    yield Candidate(title, tuple(edits))


def _made_wide(culprit: Culprit, made: ast.Call, wide: str, method: str) -> Edit:
    if called(made) == "clone":
        return culprit.replace(made, f"{culprit.text(made)}.{method}")
    return keyword(culprit.source, made, "dtype", culprit.torch(f"torch.{wide}"))


@dataclass
class _Value:
    """What a value is made of, through names, parameters and what is kept under a key or in an
    attribute. `makers` are the calls that make such a state, each with its key; `halves` name half
    precision where one begins that is added to later, each with what holds it. `gradients` are the
    reads of a parameter's gradient, and `given` those that a function is given, by its parameter.
    """

    source: Source
    makers: dict[ast.Call, str] = field(default_factory=dict)
    halves: dict[ast.Attribute, str] = field(default_factory=dict)
    gradients: list[ast.expr] = field(default_factory=list)
    given: dict[tuple[ast.FunctionDef, str], ast.expr] = field(default_factory=dict)
    _goes_into: defaultdict[object, list[ast.expr]] = field(init=False)
    _added: defaultdict[object, list[ast.expr]] = field(init=False)  # to what was there before
    _seen: set[ast.AST] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._goes_into, self._added = defaultdict(list), defaultdict(list)
        written = [*_written(self.source)]
        for place, value in (*_kept(self.source), *written):
            self._goes_into[self._known_by(place)].append(value)
        for place, value in (*self.source.nodes.given(), *written):
            known = self._known_by(place) or place
            reads = map(self._known_by, ast.walk(value))
            if known in reads or _adds(self.source.parents[value]):
                self._added[known].append(value)

    def follow(self, node: ast.AST, key: str = "", sum: str = "") -> None:
        """`key` is that under which the value is kept, of one that is a state; `sum` is what holds
        one that is added to, of the value with which it begins."""
        if node in self._seen:
            return
        self._seen.add(node)
        if sum and isinstance(node, ast.Attribute) and _is_half(self.source, node):
            self.halves[node] = sum
        if key and isinstance(node, ast.Call) and spelled(self.source, node).name in _MAKE:
            if argument(node, "dtype") is None:
                self.makers[node] = key
                return
        if isinstance(node, ast.expr) and _is_gradient(node):
            self.gradients.append(node)
            return
        place = self._known_by(node)
        for value in self._goes_into[place] if place is not None else ():
            held = place if isinstance(place, str) else key
            self._begin(value, held, place, held)
        if isinstance(node, ast.Name):
            self._named(node, key)
        for part in ast.iter_child_nodes(node):
            self.follow(part, key, sum)

    def _begin(self, value: ast.expr, key: str, place: object, name: str) -> None:
        """Follow what a place is given, which is added to it, or with which it begins."""
        start = definition(self.source, value) or value
        later = (one for one in self._added[place] if _is_later(self.source, start, one))
        is_sum = value not in self._added[place] and any(later)
        self.follow(start if is_sum else value, key, name if is_sum else "")

    def _named(self, name: ast.Name, key: str) -> None:
        place = self._known_by(name)
        bindings = self.source.nodes.owner(name).bindings.get(name.id, ())
        for binding in bindings:
            made = binding.statement
            if binding.value is not None:
                self._begin(binding.value, key, place, name.id)
            elif isinstance(made, ast.For):
                self.follow(made.iter, key)
            elif isinstance(made, ast.FunctionDef):
                given = (arguments_of(made, call) for call in calls_around(self.source, name))
                for value in filter(None, (one.get(name.id) for one in given)):
                    if _is_gradient(value):
                        self.given[made, name.id] = value
                    elif any(one.value for one in bindings):  # then it need not be what was given
                        self.follow(value, key)
                    else:
                        self._begin(value, key, place, name.id)

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
            case ast.Call(
                func=ast.Attribute(attr="register_buffer"),
                args=[ast.Constant(value=str() as key), value, *_],
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
        while isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute):
            if not is_in_place(held):
                break
            held = held.func.value
        if held is not call:
            yield from ((held, one) for one in call.args)


def _adds(write: ast.AST) -> bool:
    """Whether what writes in place leaves something of what was there."""
    if isinstance(write, ast.Call):
        return is_in_place(write) and not has(called(write), Trait.REPLACES)
    return isinstance(write, ast.AugAssign)


def _is_later(source: Source, start: ast.expr, other: ast.expr) -> bool:
    """Whether a value may be met more often than one with which it begins: in a loop, in another
    function, or where that is made on a condition."""
    before, behind = ({*ancestors(source, one)} for one in (start, other))
    is_again = any(
        isinstance(one, ast.For | ast.While | ast.FunctionDef) for one in behind - before
    )
    return is_again or any(isinstance(one, ast.If) for one in before - behind)


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
