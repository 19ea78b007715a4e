"""What one call takes in the place of what it was given: memory that is filled, a number that fits,
a function that stays positive."""

import ast
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.dtypes import eps_for
from gradscope.ops.patterns import EPSILON
from gradscope.ops.requirements import INDEXING
from gradscope.repair.write.culprit import Candidate, Culprit, Ways, can_repeat, on_edges
from gradscope.repair.write.ends import MODULES, layer, left_away, renamed
from gradscope.repair.write.initial import drawn
from gradscope.repair.write.reading import atom
from gradscope.repair.write.splice import keyword
from gradscope.repair.write.statements import block_of, for_all_readers, without_last
from gradscope.repair.write.uses import given_to, returned
from gradscope.rules.wording import phrases, proposals
from gradscope.source import Source, definition
from gradscope.source.arguments import Spelled, argument, called, spelled
from gradscope.source.tree import parts

_BINNING = ("floor", "ceil", "round", "trunc", "long", "int", "searchsorted", "bucketize")
_DEEP = 3  # names and functions behind one another
FILLED = {
    "empty": "zeros",
    "empty_like": "zeros_like",
    "new_empty": "new_zeros",
    "Tensor": "zeros",
    "FloatTensor": "zeros",
}


def allocated(culprit: Culprit, request: ask.FillMemory) -> Ways:
    """`torch.empty(n)` -> `torch.zeros(n)`, and others like it in the same way."""
    call, dotted = culprit.call, culprit.dotted(culprit.call)
    if call is None:
        return
    name = call.func.attr if isinstance(call.func, ast.Attribute) else dotted.rpartition(".")[2]
    new = FILLED.get(name)
    if new is None:
        return
    yield from drawn(culprit)
    if dotted.startswith("torch."):
        yield [culprit.source.replaced(call.func, culprit.torch(f"torch.{new}"))]
    elif isinstance(call.func, ast.Attribute):
        receiver = culprit.source.of(call.func.value)
        yield [culprit.source.replaced(call.func, f"{receiver}.{new}")]


def of_one_shape(culprit: Culprit, request: ask.MatchShapes) -> Ways:
    """`prediction.squeeze(-1)`, where it is made if its statement reads it several times, or
    `target.unsqueeze(-1)`."""
    column = culprit.operands.get(request.column)
    made = _read_again(culprit, column) if column is not None and not request.others else None
    if made is not None:
        yield [culprit.replace(made, f"{culprit.text(made)}.squeeze(-1)")]
    ways = ((request.column, "squeeze"), (request.row, "unsqueeze"))
    for role, method in ways[::-1] if request.others else ways:
        node = culprit.operands.get(role)
        if node is not None:
            yield [culprit.replace(node, f"{culprit.text(node)}.{method}(-1)")]


def _read_again(culprit: Culprit, node: ast.expr) -> ast.expr | None:
    """What the one name in an expression is given, where its statement has other reads of it."""
    names = {one.id: one for one in parts(node, ast.Name)}
    own = [one for one in names.values() if one.id not in culprit.names.imported]
    if len(own) != 1:
        return None
    reads = parts(culprit.source.nodes.statement(node), ast.Name)
    is_again = sum(one.id == own[0].id for one in reads) > 1
    return definition(culprit.source, own[0]) if is_again else None


def diagonal(culprit: Culprit, request: ask.AddToDiagonal) -> Ways:
    """A multiple of the identity added to the matrix."""
    for edge, node in _first_guarded(culprit):
        guard = culprit.torch(edge.cure.guard)
        text = guard.format(x=culprit.text(node), eps=f"{request.size:g}")
        yield [culprit.replace(node, text)]


def symmetric(culprit: Culprit, request: ask.Symmetrize) -> Ways:
    """`s = 0.5 * (s + s.mT)` behind the statement that makes it, or where it is handed over."""
    matrix = argument(culprit.node, request.role, request.position)
    template = "0.5 * ({x} + {x}.mT)"
    if isinstance(matrix, ast.Name):
        yield for_all_readers(culprit, matrix, template)
    if matrix is not None and can_repeat(culprit, matrix):
        yield [culprit.replace(matrix, template.format(x=culprit.text(matrix)))]


def growing_linearly(culprit: Culprit, request: ask.LinearGrowth) -> Ways:
    """`softplus(x)` for `torch.exp(x)` and `x.exp()`."""
    found = spelled(culprit.source, culprit.node)
    if found.name == "exp" and found.first is not None and culprit.call is not None:
        softplus = culprit.torch("torch.nn.functional.softplus")
        yield [culprit.replace(culprit.call, f"{softplus}({culprit.source.of(found.first)})")]


def fitted(culprit: Culprit, request: ask.FitNumber) -> Ways:
    """The end of the dtype's range in the place of the number."""
    number, tensor = culprit.operands.get(request.unfit.role), culprit.operands.get("self")
    end = "max" if request.unfit.value > 0 else "min"
    if number is not None and tensor is not None and can_repeat(culprit, tensor):
        made = f"{culprit.torch('torch.finfo(')}{culprit.text(tensor)}.dtype).{end}"
        yield [culprit.replace(number, made)]


def fitted_cast(culprit: Culprit, request: ask.FitCast) -> Ways:
    """`bias.clamp(min=torch.finfo(scores.dtype).min).to(scores.dtype)`."""
    call, source = culprit.call, culprit.source
    if call is None or not isinstance(call.func, ast.Attribute):
        return
    into = culprit.torch(f"torch.{request.dtype}")
    for given in (*call.args, *(key.value for key in call.keywords)):
        text, dotted = source.of(given), culprit.names.dotted(given) or ""
        if text.endswith(".dtype") or dotted == f"torch.{request.dtype}":
            into = text
    end = "min" if request.low else "max"
    bound = f"{end}={culprit.torch('torch.finfo(')}{into}).{end}"
    value = call.func.value
    yield [culprit.replace(value, f"{atom(source.of(value))}.clamp({bound})")]


def scaled_target(culprit: Culprit, request: ask.ScaleTarget) -> Ways:
    """`mask / 255` where the loss is given `mask`."""
    target = argument(culprit.node, "target", 1)
    if target is not None:
        text, span = atom(culprit.source.of(target)), request.high - request.low
        if request.low:
            sign = "-" if request.low > 0 else "+"
            text = f"{text} {sign} {abs(request.low):g}"
            text = f"({text})" if span != 1 else text
        yield [culprit.replace(target, f"{text} / {span:g}" if span != 1 else text)]


def ignored(culprit: Culprit, request: ask.IgnoreTarget) -> Ways:
    """The argument that leaves targets out."""
    if culprit.call is not None:
        yield [keyword(culprit.source, culprit.call, "ignore_index", str(request.value))]


def bounded_index(culprit: Culprit, request: ask.BoundIndex) -> Ways:
    """`k.clamp(max=table.shape[-1] - 1)`, where the positions are made, else where they are used;
    of positions that are computed, and not read from data."""
    source, node = culprit.source, culprit.node
    index = into = None
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Tuple | ast.Slice):
        index, into = node.slice, node.value
    elif isinstance(node, ast.Call):
        found = spelled(source, node)
        if found.name in INDEXING and INDEXING[found.name].into == "self":
            into, index = found.first, found.keywords.get("index")
            index = found.positional[2] if index is None and len(found.positional) > 2 else index
    if index is None or into is None or not can_repeat(culprit, into):
        return
    made = definition(source, index)
    if not _is_binned(culprit, made or index):
        return
    last = f"{atom(culprit.text(into))}.shape[{request.dim}] - 1"
    for one in (made, index):
        if one is not None:
            yield [culprit.replace(one, f"{atom(source.of(one))}.clamp(max={last})")]


def _is_binned(culprit: Culprit, node: ast.expr, deep: int = _DEEP) -> bool:
    """Whether numbers on a scale become positions there."""
    source = culprit.source
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv):
            return True
        if isinstance(part, ast.Call) and called(part) in _BINNING:
            return True
        behind = definition(source, part)
        behind = returned(source, part) if isinstance(part, ast.Call) else behind
        if behind is not None and deep and _is_binned(culprit, behind, deep - 1):
            return True
    return False


def learnt(culprit: Culprit, request: ask.LearnInside) -> Ways:
    """`F.softplus(x)` for `F.relu(x)` and for `x.clamp(min=0)`, `nn.Softplus()` for `nn.ReLU()`, or
    around a call. A bound beside it would leave the elements that it set to 0 without a gradient.
    """
    call = culprit.at(request.made)
    if call is None:
        return
    edit, found = None, spelled(culprit.source, call)
    module = None if request.signed else layer(culprit, call, "torch.nn.ReLU")
    if module is not None:
        edit = renamed(culprit, module, "Softplus")
    elif request.signed:
        what = argument(call, *request.argument) if request.argument else call
        edit = _inside(culprit, what, what, request.by) if what is not None else None
    elif found.first is not None and _is_rectifier(found):
        edit = _inside(culprit, call, found.first, request.by)
    if edit is not None:
        yield (edit,)


def learnt_in_part(culprit: Culprit, request: ask.LearnPartInside) -> Ways:
    """`sigma = F.softplus(sigma)` where its name is given, or around what one line alone reads."""
    template = culprit.torch(_FUNCTIONS[ask.Inside.SOFTPLUS])
    for _, node in _first_guarded(culprit):
        edits = for_all_readers(culprit, node, template) if isinstance(node, ast.Name) else ()
        yield edits or [culprit.replace(node, template.format(x=culprit.source.of(node)))]


def _first_guarded(culprit: Culprit) -> list[tuple[Edge, ast.expr]]:
    """The first edge that has a guard, with the operand that is on it; empty where none has."""
    return [one for one in on_edges(culprit) if one[0].cure.guard][:1]


def behind(culprit: Culprit, request: ask.AddBehind) -> Iterator[Candidate]:
    """`F.softplus(x) + 1e-6`, also for `F.softplus(x + 1e-6)`: the program itself tells there that
    it wants such a bound, which the operand does not give."""
    call = culprit.at(request.made.location)
    if call is None:
        return
    text, eps = culprit.source.of(call), f"{eps_for(culprit.dtype):g}"
    inner = spelled(culprit.source, call).first or call
    added = spelled(culprit.source, inner)
    last = added.positional[-1] if added.name == "add" else None
    is_epsilon = last is not None and _is_epsilon(culprit, last)
    if last is not None and is_epsilon:
        eps = culprit.source.of(last)
        text = text.replace(culprit.source.of(inner), culprit.source.of(added.positional[0]))
    title = proposals.BEHIND.format(op=phrases.spelled(request.made.op))
    yield Candidate(title, (culprit.replace(call, f"{text} + {eps}"),), own_number=is_epsilon)


def raised(culprit: Culprit, request: ask.RaiseAbove) -> Ways:
    """`F.softplus(x) + 1` for `F.softplus(x)`; of a function that gives this for several values,
    what is called for the one that needs it first."""
    call = culprit.at(request.made.location)
    if call is None:
        return
    places = [call]
    if _is_for_several(culprit.source, call):
        places = [*filter(None, map(culprit.at, request.made.frames[1:2])), call]
    for one in places:
        is_listed = isinstance(culprit.source.parents[one], ast.Tuple | ast.List)
        put = culprit.source.replaced if is_listed else culprit.replace
        yield (put(one, f"{culprit.source.of(one)} + {request.least:g}"),)


def _is_for_several(source: Source, value: ast.expr) -> bool:
    """Whether a function that is called several times returns a value."""
    function = source.nodes.function(value)
    if not isinstance(function, ast.FunctionDef):
        return False
    calls = [one for one in source.nodes.every(ast.Call) if called(one) == function.name]
    return len(calls) > 1 and _is_returned(source, source.parents[value])


def _is_epsilon(culprit: Culprit, node: ast.expr) -> bool:
    """A small number, also by a name."""
    made = node if isinstance(node, ast.Constant) else given_to(culprit.source, node)
    value = made.value if isinstance(made, ast.Constant) else None
    return isinstance(value, float) and 0 < value <= EPSILON


def left_out(culprit: Culprit, request: ask.LeaveOutRectifier) -> Ways:
    """`return self.out(h)` for `return F.relu(self.out(h))`, or a Sequential without its last
    layer: `make_layers(sizes)[:-1]` where a function builds others too."""
    made, edit = culprit.call, None
    built = culprit.at(request.built_at)
    if isinstance(built, ast.Call):
        edit = culprit.source.replaced(built, f"{culprit.source.of(built)}[:-1]")
    elif request.put_at is not None:
        edit = next(without_last(culprit.source, culprit.at(request.put_at)), None)
    elif made is not None:
        module = layer(culprit, made, "torch.nn.ReLU")
        is_returned = _is_returned(culprit.source, culprit.source.parents[made])
        if module is not None or (is_returned and spelled(culprit.source, made).name == "relu"):
            edit = left_away(culprit, made, module)
    if edit is not None:
        yield Candidate("leave the rectifier away, where the model gives its output", (edit,))


def _is_returned(source: Source, above: ast.AST) -> bool:
    """Whether a value is returned there, or by the next statement by the name that it gets."""
    match above, block_of(source, above) if isinstance(above, ast.Assign) else []:
        case ast.Assign(targets=[ast.Name(id=name)]), [*_, one, ast.Return(ast.Name(id=given))]:
            return one is above and name == given
    return isinstance(above, ast.Return)


def _is_rectifier(found: Spelled) -> bool:
    """`F.relu(x)`, `x.clamp(min=0)`, `x.clamp_min(0)`."""
    bounds = [*found.positional[1:], *found.keywords.values()]
    is_zero = all(isinstance(one, ast.Constant) and one.value == 0 for one in bounds)
    is_floor = found.name == "clamp" and len(bounds) == 1 and "max" not in found.keywords
    return found.name == "relu" or (is_floor and is_zero)


_FUNCTIONS = {
    ask.Inside.SOFTPLUS: "torch.nn.functional.softplus({x})",
    ask.Inside.SIGMOID: "torch.sigmoid({x})",
    ask.Inside.CLAMP: "{a}.clamp(0, 1)",
}


def _inside(culprit: Culprit, place: ast.expr, operand: ast.expr, by: ask.Inside) -> Edit:
    made = _FUNCTIONS[by].format(x=culprit.source.of(operand), a=culprit.text(operand))
    return culprit.replace(place, culprit.torch(made))


_OF_ONE = {
    "softmax": ("torch.nn.Sigmoid()", "torch.sigmoid({x})"),
    "log_softmax": ("torch.nn.LogSigmoid()", "torch.nn.functional.logsigmoid({x})"),
}


def by_sigmoid(culprit: Culprit, request: ask.TakeSigmoid) -> Ways:
    """`torch.sigmoid(x)` for `x.softmax(1)`, `nn.Sigmoid()` for `nn.Softmax(1)`, and the binary
    loss for a cross entropy, which takes the softmax itself."""
    call = culprit.call
    if call is None:
        return
    module, function = _OF_ONE[request.op]
    found = spelled(culprit.source, call)
    edit = _of_logits(culprit, call, "CrossEntropyLoss", "cross_entropy")
    if (made := layer(culprit, call, MODULES[request.op])) is not None:
        edit = culprit.replace(made, culprit.torch(module))
    elif found.name == request.op and found.first is not None:
        text = culprit.source.of(found.first)
        edit = culprit.replace(call, culprit.torch(function).format(x=text))
    if edit is not None:
        yield (edit,)


def with_logits(culprit: Culprit, request: ask.TakeLogits) -> Ways:
    """`nn.BCEWithLogitsLoss` for `nn.BCELoss`, and the same of the function."""
    call = culprit.at(request.place)
    if not isinstance(call, ast.Call):
        return
    edit = _of_logits(culprit, call, "BCELoss", "binary_cross_entropy")
    if edit is not None:
        yield (edit,)


def _of_logits(culprit: Culprit, call: ast.Call, module: str, function: str) -> Edit | None:
    """The binary loss of logits in the place of the one that a module, or a function, computes."""
    if (made := layer(culprit, call, f"torch.nn.{module}")) is not None:
        return renamed(culprit, made, "BCEWithLogitsLoss")
    if culprit.dotted(call) == f"torch.nn.functional.{function}":
        name = "binary_cross_entropy_with_logits"
        full = culprit.torch(f"torch.nn.functional.{name}")
        return renamed(culprit, call, name) or culprit.replace(call.func, full)
    return None
