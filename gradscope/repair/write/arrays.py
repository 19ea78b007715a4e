"""What leaves the graph for NumPy or as Python's numbers and comes back, kept in torch."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.source import Source, definition
from gradscope.source.arguments import called
from gradscope.source.spans import ancestors, parenthesized
from gradscope.source.tree import parts

_BACK = frozenset(
    f"torch.{name}"
    for name in "from_numpy tensor as_tensor asarray Tensor FloatTensor DoubleTensor".split()
)
_LISTS = frozenset(f"numpy.{name}" for name in "array asarray stack".split())
_READS = frozenset(("item", "tolist"))  # methods that give Python's numbers
_OUT = frozenset(("numpy", "detach", "cpu"))  # methods without arguments
_DTYPES = frozenset("float64 float32 float16 int64 int32 bool complex64 complex128".split())
_NAMES = {"newaxis": "None", "astype": "to"}


def in_torch(culprit: Culprit) -> Iterator[Candidate]:
    """`torch.tanh(x)` for `torch.from_numpy(np.tanh(x.detach().numpy()))`, also over several lines
    all of which end in torch."""
    source, node = culprit.source, culprit.node
    edits: dict[ast.expr, Edit] = {}
    waiting, leaves = [node] if isinstance(node, ast.expr) else [], False
    while waiting:
        whole = _whole(culprit, waiting.pop())
        if whole in edits:
            continue
        text = _as_torch(culprit, whole)
        if text is None:
            return
        edits[whole] = culprit.replace(whole, text)
        named = (definition(source, one) for one in parts(whole, ast.Name))
        waiting += [one for one in named if one is not None and _is_array(culprit, one)]
        leaves |= any(called(one) == "numpy" for one in parts(whole, ast.Call))
        if not _is_back(culprit, whole):
            made = source.parents[whole]
            target = made.targets[0] if isinstance(made, ast.Assign) else None
            if not isinstance(target, ast.Name):
                return
            reads = source.nodes.reads(target)
            waiting += [one for one in reads if definition(source, one) is whole]
    if leaves and any(_is_back(culprit, one) for one in edits):
        yield Candidate("compute it in torch: NumPy keeps no graph", tuple(edits.values()))


def _is_array(culprit: Culprit, node: ast.expr) -> bool:
    """Whether NumPy computes a value: with a tensor it would meet, it has to be one as well."""
    return not _is_back(culprit, node) and any(
        culprit.dotted(one).startswith("numpy.") or called(one) == "numpy"
        for one in parts(node, ast.Call)
    )


def _whole(culprit: Culprit, node: ast.expr) -> ast.expr:
    """The largest expression around a node, up to where it comes back to torch."""
    whole = node
    for around in ancestors(culprit.source, node):
        if not isinstance(around, ast.expr | ast.keyword) or _is_back(culprit, whole):
            break
        whole = around if isinstance(around, ast.expr) else whole
    return whole


def _is_back(culprit: Culprit, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(node.args) and culprit.dotted(node) in _BACK


def _as_torch(culprit: Culprit, whole: ast.expr) -> str | None:
    """The text of an expression with NumPy's functions as torch's of the same name; None where it
    has several lines."""
    source = culprit.source
    begin = source.extent(whole)[0]
    text = source.of(whole)
    for start, end, new in sorted(_changes(culprit, whole), reverse=True):
        text = text[: start - begin] + new + text[end - begin :]
    return culprit.torch(text) if "\n" not in text else None


def _changes(culprit: Culprit, whole: ast.expr) -> Iterator[tuple[int, int, str]]:
    """What becomes of each part: its start and end in the file, and the text for it."""
    source = culprit.source
    for node in ast.walk(whole):
        if not isinstance(node, ast.expr):
            continue
        start, end = source.extent(node)
        if isinstance(node, ast.Constant) and node.value in _DTYPES:
            yield start, end, f"torch.{node.value}"
        elif isinstance(node, ast.Call) and _is_back(culprit, node):
            first, last = source.extent(node.args[0])
            yield start, first, ""
            yield last, end, ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if called(node) in _OUT and not node.args:
                yield parenthesized(source, node.func.value)[1], end, ""
        elif isinstance(node, ast.Attribute):
            dotted = culprit.dotted(node)
            if isinstance(source.parents[node], ast.Attribute):
                continue
            if dotted.startswith("numpy."):
                yield start, end, _NAMES.get(node.attr, f"torch.{dotted.removeprefix('numpy.')}")
            elif node.attr in _NAMES:
                yield end - len(node.attr), end, _NAMES[node.attr]


def kept(culprit: Culprit) -> Iterator[Candidate]:
    """`torch.stack(losses)` for `torch.tensor(losses)`, and `losses.append(loss)` for
    `losses.append(loss.item())`; `x` for `x.item()`."""
    source, node = culprit.source, culprit.call
    if node is None:
        return
    for back in parts(source.nodes.function(node), ast.Call):
        if not _is_back(culprit, back):
            continue
        seen: set[ast.expr] = set()
        readings = list(_readings(source, back.args[0], seen))
        text = _from_tensors(culprit, back.args[0], bool(readings))
        if text is not None and (back is node or node in readings):
            inside = set(ast.walk(back))
            outside = [one for one in readings if one not in inside]
            edits = [culprit.replace(one, _unread(source, one)) for one in outside]
            title = "keep the tensors: `torch.tensor` copies their numbers"
            yield Candidate(title, (*edits, culprit.replace(back, text)))
            return
    if _is_reading(node):
        name = f"{node.func.id}()" if isinstance(node.func, ast.Name) else f".{called(node)}()"
        yield culprit.written(f"keep the tensor, without `{name}`", node, _unread(source, node))


def _is_reading(node: ast.AST) -> TypeGuard[ast.Call]:
    """`x.item()`, `x.tolist()`, `float(x)`."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in _READS and not node.args
    return isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1


def _unread(source: Source, node: ast.expr) -> str:
    """The text of what a number is read out of: of `x` for `float(x.detach())`."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READS | _OUT:
            node = node.func.value
        elif _is_reading(node):
            node = node.args[0]
        else:
            break
    return source.of(node)


def _outermost(node: ast.AST) -> Iterator[ast.Call]:
    """The readings of numbers in an expression that stand in no other one."""
    if _is_reading(node):
        yield node
    else:
        for part in ast.iter_child_nodes(node):
            yield from _outermost(part)


def _readings(source: Source, value: ast.expr, seen: set[ast.expr]) -> Iterator[ast.Call]:
    """Where the numbers in an expression were read: there, or where its names were filled."""
    seen.add(value)
    here = list(_outermost(value))
    yield from here
    for name in ast.walk(value) if not here else ():
        for filled in _fillings(source, name) if isinstance(name, ast.Name) else ():
            if filled not in seen:
                yield from _readings(source, filled, seen)


def _fillings(source: Source, name: ast.Name) -> Iterator[ast.expr]:
    """What a name is given: by assignments, by `+=`, by `append`."""
    for made in source.nodes.owner(name).bindings.get(name.id, ()):
        value = getattr(made.statement, "value", None) if made.value is None else made.value
        if isinstance(made.statement, ast.Assign | ast.AugAssign) and isinstance(value, ast.expr):
            yield value
    for read in source.nodes.reads(name):
        method = source.parents[read]
        call = source.parents[method]
        if isinstance(method, ast.Attribute) and isinstance(call, ast.Call):
            yield from call.args[:1] if method.attr == "append" else ()


def _from_tensors(culprit: Culprit, value: ast.expr, are_read: bool) -> str | None:
    """The text of an expression over numbers as one over the tensors that they were read from."""
    source = culprit.source
    if isinstance(value, ast.Call) and len(value.args) == 1:
        dotted = culprit.dotted(value)
        inner = _from_tensors(culprit, value.args[0], are_read)
        if dotted in _LISTS:
            return inner
        if dotted.startswith("numpy.") and inner is not None:
            return culprit.torch(f"torch.{dotted.removeprefix('numpy.')}({inner})")
    text = source.written(
        value, {one: _unread(source, one) for one in _outermost(value)} | _filled(culprit, value)
    )
    many = isinstance(value, ast.List | ast.ListComp) or not are_read
    if isinstance(value, ast.Name):
        lists = (ast.List, ast.ListComp)
        many |= any(isinstance(one, lists) for one in _fillings(source, value))
    return culprit.torch(f"torch.stack({text})") if many else text


def _filled(culprit: Culprit, value: ast.expr) -> dict[ast.expr, str]:
    """`torch.zeros_like(x)` for the 0 in `[0.0, x]`: what is stacked has to be tensors."""
    stacked = value.elts if isinstance(value, ast.List) else []
    tensors = [one for one in stacked if not isinstance(one, ast.Constant)]
    like = _unread(culprit.source, tensors[0]) if tensors else ""
    found: dict[ast.expr, str] = {}
    for one in stacked if like else ():
        if isinstance(one, ast.Constant) and isinstance(one.value, int | float):
            made = f"full_like({like}, {culprit.source.of(one)})"
            if one.value in (0, 1):
                made = f"{'ones' if one.value else 'zeros'}_like({like})"
            found[one] = culprit.torch(f"torch.{made}")
    return found


def divided_by_one(culprit: Culprit, request: ask.DivideArrayByOne) -> Iterator[Candidate]:
    """`x / np.where(y == 0, 1, y)`."""
    node, where = culprit.node, culprit.names.spell("numpy.where")
    divisor = node.right if isinstance(node, ast.BinOp) else getattr(node, "value", None)
    is_quotient = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
    if is_quotient and where is not None and isinstance(divisor, ast.expr):
        text = culprit.source.of(divisor)
        safe = f"{where}({text} == 0, 1, {text})"
        yield culprit.written(f"divide by 1 where `{text}` is 0", divisor, safe)
