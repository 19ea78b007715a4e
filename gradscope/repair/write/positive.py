"""A parameter given other numbers: its logarithm where it has to be positive, 1 for 0 to start
from, or float64."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Culprit
from gradscope.repair.write.ends import renamed
from gradscope.repair.write.initial import PARAMETERS
from gradscope.repair.write.reading import atom
from gradscope.repair.write.uses import class_of
from gradscope.source import Source
from gradscope.source.arguments import called, spelled
from gradscope.source.spans import ancestors
from gradscope.source.tree import last_name, parts

_OF_THE_LEAF = frozenset(("grad", "requires_grad", "is_leaf", "shape", "dtype", "device", "numel"))
_CONTAINERS = ast.List | ast.Tuple | ast.Dict | ast.Set


def as_logarithm(culprit: Culprit, request: ask.LearnLogarithm) -> Iterator[tuple[Edit, ...]]:
    """`self.log_scale = nn.Parameter(x.log())` for `self.scale = nn.Parameter(x)`, and
    `self.log_scale.exp()` where that is read. Nothing where it is written to in other places."""
    source, name = culprit.source, request.name.rpartition(".")[2]
    made = _given(source, name)
    reads = (*source.nodes.every(ast.Name), *source.nodes.every(ast.Attribute))
    taken = {last_name(node) for node in reads}
    if len(made) != 1 or not name.isidentifier() or f"log_{name}" in taken:
        return
    target, value = made[0]
    if (start := _started(culprit, value)) is None:
        return
    renamed_target = culprit.replace(target, _renamed(culprit, target, name))
    edits = [culprit.replace(value, start), renamed_target]
    for node in reads:
        is_named = last_name(node) == name and node is not target
        if not is_named or not _is_it(culprit, node, target, request.name):
            continue
        edit = _read(culprit, node, name)
        if edit is None:
            return
        edits.append(edit)
    yield tuple(edits)


def started_at_one(culprit: Culprit, request: ask.StartAtOne) -> Iterator[tuple[Edit, ...]]:
    """`nn.Parameter(torch.ones(n))` for `nn.Parameter(torch.zeros(n))`, and `init.ones_(x)` for
    `init.zeros_(x)`."""
    source, name = culprit.source, request.name.rpartition(".")[2]
    made = [value for _, value in _given(source, name)]
    filled = [
        call
        for call in source.nodes.every(ast.Call)
        if culprit.dotted(call).startswith("torch.nn.init.")
        if call.args and last_name(call.args[0]) == name
    ]
    if len(filled or made) == 1:
        yield tuple(_ones(culprit, (filled or made)[0]))


def in_float64(culprit: Culprit, request: ask.WiderParameter) -> Iterator[tuple[Edit, ...]]:
    """`nn.Parameter(torch.tensor(t, dtype=torch.float64))` for `nn.Parameter(torch.tensor(t))`, and
    `nn.Parameter(start.double())` for any other start."""
    source, name = culprit.source, request.name.rpartition(".")[2]
    made = [value for _, value in _given(source, name) if isinstance(value, ast.Call)]
    if len(made) != 1 or culprit.dotted(made[0]) not in PARAMETERS or not made[0].args:
        return
    start = made[0].args[0]
    text = f"{atom(source.of(start))}.double()"
    if isinstance(start, ast.Call) and culprit.dotted(start) == "torch.tensor":
        if not start.keywords:  # which would round the number to float32 first
            text = f"{source.of(start)[:-1]}, dtype={culprit.torch('torch.float64')})"
    yield (culprit.replace(start, text),)


def _ones(culprit: Culprit, value: ast.expr) -> Iterator[Edit]:
    """1 for each 0 that an expression fills a tensor with."""
    for call in parts(value, ast.Call):
        name = culprit.dotted(call).rpartition(".")[2]
        filled: list[ast.expr] = []
        if name in ("zeros", "zeros_like", "zeros_"):
            edit = renamed(culprit, call, name.replace("zeros", "ones"))
            yield from [edit] if edit is not None else []
        elif name in ("tensor", "as_tensor", "Tensor"):
            filled = call.args[:1]
        elif name in ("full", "full_like", "constant_"):
            filled = [*call.args[1:2], *(key.value for key in call.keywords)]
        for node in (part for one in filled for part in parts(one, ast.Constant)):
            if node.value == 0 and node.value is not False:
                yield culprit.source.replaced(node, "1.0")


def _given(source: Source, name: str) -> list[tuple[ast.expr, ast.expr]]:
    return [(target, value) for target, value in source.nodes.given() if last_name(target) == name]


def _started(culprit: Culprit, value: ast.expr) -> str | None:
    """What starts a parameter at the logarithm of its start."""
    of = culprit.source.of
    if not isinstance(value, ast.Call):
        return None
    if culprit.dotted(value) in PARAMETERS and value.args:
        start = _logarithm(culprit, value.args[0])
        return culprit.source.written(value, {value.args[0]: start})
    if called(value) == "requires_grad_" and isinstance(value.func, ast.Attribute):
        return f"{_logarithm(culprit, value.func.value)}.requires_grad_()"
    others = [key for key in value.keywords if key.arg != "requires_grad"]
    if len(others) == len(value.keywords):
        return None
    given = [*map(of, value.args), *(f"{key.arg}={of(key.value)}" for key in others)]
    return f"{of(value.func)}({', '.join(given)}).log().requires_grad_()"


def _logarithm(culprit: Culprit, start: ast.expr) -> str:
    """Of the values that a parameter starts with: `torch.zeros(n)` of `torch.ones(n)`."""
    function = start.func if isinstance(start, ast.Call) else start
    name = culprit.dotted(function).rpartition(".")[2]
    if isinstance(start, ast.Call) and name in ("ones", "ones_like"):
        zeros = culprit.source.of(function).removesuffix(name) + name.replace("ones", "zeros")
        return culprit.source.written(start, {function: zeros})
    return f"{atom(culprit.source.of(start))}.log()"


def _is_it(culprit: Culprit, node: ast.expr, target: ast.expr, name: str) -> bool:
    """Whether a node of that name is the parameter: of the same scope, class or object."""
    source = culprit.source
    if isinstance(target, ast.Name) or isinstance(node, ast.Name):
        if not isinstance(target, ast.Name) or not isinstance(node, ast.Name):
            return False
        return source.nodes.owner(node) is source.nodes.owner(target)
    if source.of(node) == name:
        return True
    assert isinstance(target, ast.Attribute) and isinstance(node, ast.Attribute)
    holder = class_of(source, target)
    return holder is not None and class_of(source, node) is holder


def _read(culprit: Culprit, node: ast.expr, name: str) -> Edit | None:
    """A read of the parameter: its exponential, or the parameter itself for the optimizer."""
    above = culprit.source.parents[node]
    is_leaf = isinstance(above, ast.Attribute) and above.attr in _OF_THE_LEAF
    if _is_written(culprit, node):
        return None
    text = _renamed(culprit, node, name)
    if is_leaf or _is_listed(culprit, node):
        return culprit.replace(node, text)
    whole = culprit.source.parents[above] if isinstance(above, ast.Attribute) else above
    found = spelled(culprit.source, whole)
    is_log = found.name == "log" and found.positional == (node,) and not found.keywords
    if isinstance(whole, ast.Call) and is_log:
        return culprit.replace(whole, text)
    return culprit.replace(node, f"{text}.exp()")


def _is_written(culprit: Culprit, node: ast.AST) -> bool:
    """Whether it, a part of it or its `.data` is assigned to or changed in place."""
    while isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        if not isinstance(node.ctx, ast.Load):
            return True
        above = culprit.source.parents[node]
        if isinstance(above, ast.Attribute) and above.attr.endswith("_"):
            return True
        is_part = isinstance(above, ast.Subscript) and above.value is node
        if not is_part and getattr(above, "attr", "") != "data":
            return False
        node = above
    return True


def _is_listed(culprit: Culprit, node: ast.expr) -> bool:
    """Whether it is handed on as the tensor that is trained: to an optimizer, or in a list, and not
    as one of several results, nor to a name of its own."""
    outermost: ast.AST = node
    for above in ancestors(culprit.source, node):
        if isinstance(above, ast.Call):
            return culprit.dotted(above).startswith("torch.optim.")
        if not isinstance(above, _CONTAINERS | ast.keyword | ast.Starred):
            is_unpacked = isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple)
            is_result = is_unpacked or isinstance(above, ast.Return)
            is_several = is_result and isinstance(outermost, ast.Tuple)
            return isinstance(above, ast.stmt) and outermost is not node and not is_several
        outermost = above
    return False


def _renamed(culprit: Culprit, node: ast.expr, name: str) -> str:
    return f"{culprit.source.of(node).removesuffix(name)}log_{name}"
