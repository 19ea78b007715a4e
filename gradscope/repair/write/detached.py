"""Graphs that end too early: the expression that cuts one, without the cut."""

import ast
from collections.abc import Callable, Iterator, Mapping

from gradscope.facts import Edit, NoGradient
from gradscope.facts import requests as ask
from gradscope.repair.write.anew import whole_parameter
from gradscope.repair.write.arrays import in_torch, kept
from gradscope.repair.write.culprit import Candidate, Culprit, can_repeat
from gradscope.repair.write.cycles import loops_around, moved
from gradscope.repair.write.initial import PARAMETERS, away_from_zero, smoothed
from gradscope.repair.write.once import computed_once
from gradscope.repair.write.parameters import made_later
from gradscope.repair.write.splice import before, commented, keyword
from gradscope.repair.write.statements import block_of, dropped, rebound
from gradscope.source import Source, binding
from gradscope.source.arguments import called, spelled
from gradscope.source.literals import number
from gradscope.source.spans import ancestors
from gradscope.source.tree import names_in, parts

GUARDS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.set_grad_enabled"})
FACTORIES = frozenset(
    f"torch.{name}" for name in "tensor zeros ones full rand randn linspace arange eye".split()
)
COPIES = frozenset({"torch.tensor", "torch.as_tensor"})  # of the numbers, without the graph
DERIVATIVES = ("torch.autograd.grad", "torch.autograd.functional.")
_DECIDES = frozenset("argmax argmin gt ge lt le".split())
_FROM_INTEGERS = frozenset("to type float double half bfloat16 type_as".split())
_CASTS = frozenset("to type int long short byte char".split())
VARIABLE = "torch.autograd.Variable"  # of 2017; it makes a leaf of what it is given


def _attached(culprit: Culprit) -> Iterator[Candidate]:
    """`x` for `x.detach()`, `x.data` and `Variable(x.data)`."""
    node, inner = culprit.node, None
    title = "drop the `.detach()` (or `.data`) on the way to the loss"
    match node:
        case ast.Call(args=[first, *_]) if culprit.dotted(node) in COPIES:
            inner, title = first, "use the tensor itself: `torch.tensor` copies its numbers"
        case ast.Call(func=ast.Attribute(value, "detach")) | ast.Attribute(value, "data"):
            inner = value
    if inner is None or not isinstance(node, ast.expr):
        return
    around = culprit.source.parents.get(node)
    if isinstance(around, ast.Call) and culprit.dotted(around) == VARIABLE:
        node = around
    elif isinstance(around, ast.Attribute) and around.attr in ("requires_grad_", "item"):
        call = culprit.source.parents.get(around)  # which hides that the graph is gone, or goes on
        node = call if isinstance(call, ast.Call) else node
    yield culprit.written(title, node, culprit.source.of(inner))


def _cut_later(culprit: Culprit) -> Iterator[Candidate]:
    """`x = z + (x - z).detach()` below a statement that reads the `x` before it."""
    source, cut = culprit.source, culprit.statement
    match cut:
        case ast.Assign(targets=[ast.Name(name)]) if name in names_in(cut.value):
            block = block_of(source, cut)
        case _:
            return
    later = [one for one in block[block.index(cut) + 1 :] if name in names_in(one)]
    for reader in later[:-1]:
        if edits := moved(source, cut, reader):
            title = f"cut `{name}` off once line {reader.lineno} has read it"
            yield Candidate(title, edits)


def _straight_through(culprit: Culprit) -> Iterator[Candidate]:
    node = culprit.call
    x = culprit.operands.get("self") or spelled(culprit.source, node).first
    if node is None or x is None:
        return
    rounded = f"({culprit.source.of(node)} - {culprit.text(x)}).detach()"
    text = f"{culprit.source.of(x)} + {rounded}"
    one = culprit.written("pass the gradient straight through", node, text)
    once = computed_once(culprit, one)
    if once is not one or can_repeat(culprit, x):
        yield once


def _undecided(culprit: Culprit) -> Iterator[Candidate]:
    """`prob` for `(prob > 0.5).float()`, `scores` for `scores.argmax(1).float()`, and
    `softmax(scores, 1)` for `one_hot(scores.argmax(1), n).float()`."""
    whole, source = culprit.node, culprit.source
    if not isinstance(whole, ast.Compare | ast.Call):
        return
    if isinstance(whole, ast.Call):
        decided = spelled(source, whole).first if called(whole) in _DECIDES else None
    else:
        is_one = len(whole.ops) == 1 and number(source, whole.comparators[0])
        decided = whole.left if is_one else None
    if decided is None:
        return
    text, dims = source.of(decided), spelled(source, whole).positional[1:2]
    for around in ancestors(source, whole):
        name = called(around) if isinstance(around, ast.Call) else ""
        if name == "one_hot" and dims and isinstance(around, ast.Call):
            text, whole = culprit.torch(f"torch.softmax({text}, {source.of(dims[0])})"), around
        elif name in _FROM_INTEGERS and isinstance(around, ast.Call):
            whole = around
        elif not isinstance(around, ast.Attribute):
            break
    title = f"go on with `{text}`: a decision has no slope"
    yield culprit.written(title, whole, text)


def _past_the_choice(culprit: Culprit) -> Iterator[Candidate]:
    """`z + (q - z).detach()` for `(z + (q - z)).detach()`."""
    node, source = culprit.call, culprit.source
    match node:
        case ast.Call(func=ast.Attribute(ast.BinOp(left, ast.Add(), right))):
            sides = ((right, left), (left, right))
        case _:
            return
    for change, rest in sides:
        if isinstance(change, ast.BinOp) and isinstance(change.op, ast.Sub):
            if source.of(change.right) == source.of(rest):
                cut = f"({source.of(change)}).detach()"
                both = (source.of(rest), cut) if change is right else (cut, source.of(rest))
                yield culprit.written("detach the difference alone", node, " + ".join(both))


def copied(culprit: Culprit, request: ask.CopyBeforeWriting) -> Iterator[Candidate]:
    """`h = h.clone()` before `h.data[mask] = 0.0`, and that without the `.data`."""
    source, written = culprit.source, culprit.statement
    for node in sorted(parts(written, ast.Attribute), key=source.extent):
        if node.attr == "data" and isinstance(node.value, ast.Name):
            name = node.value.id
            copy = before(source, written, f"{name} = {name}.clone()")
            edits = (*copy, source.replaced(node, name))
            yield Candidate(f"write into a copy of `{name}`", edits)
            return


def _reparametrised(culprit: Culprit) -> Iterator[Candidate]:
    """`q.rsample()` for `q.sample()`, `mean + std * noise` for `torch.normal(mean, std)`."""
    call, found = culprit.call, spelled(culprit.source, culprit.node)
    if call is None or not found:
        return
    if isinstance(call.func, ast.Attribute) and call.func.attr == "sample":
        edit = culprit.source.renamed(call.func, "rsample")
        yield Candidate("draw with `rsample()`, which has a gradient", (edit,))
        return
    given = {**dict(zip(("mean", "std"), found.positional, strict=False)), **found.keywords}
    mean, std = given.get("mean"), given.get("std")
    if found.name == "normal" and mean and std and can_repeat(culprit, mean):
        scale = culprit.source.of(std) if isinstance(std, ast.Constant) else culprit.text(std)
        noise = f"{culprit.torch('torch.randn_like(')}{culprit.source.of(mean)})"
        text = f"{culprit.text(mean)} + {scale} * {noise}"
        yield culprit.written("draw the noise, and scale and shift it", call, text)


def _interpolated(culprit: Culprit) -> Iterator[Candidate]:
    """`mode="bilinear"` for `mode="nearest"`."""
    for node in parts(culprit.node, ast.Constant):
        if node.value == "nearest":
            quote = culprit.source.of(node)[0]
            yield culprit.written("interpolate between the pixels", node, f"{quote}bilinear{quote}")


def _unwrapped(culprit: Culprit) -> Iterator[Candidate]:
    for call in ancestors(culprit.source, culprit.node) if culprit.node else ():
        if isinstance(call, ast.Call) and culprit.dotted(call) in PARAMETERS:
            text = culprit.source.of(call.args[0])
            yield culprit.written("use the computed value as it is", call, text)
            return


def _enabled(culprit: Culprit) -> Iterator[Candidate]:
    """`with torch.enable_grad():`, and the same for a decorator."""
    guard = culprit.call
    if guard is not None and isinstance(culprit.source.parents[guard], ast.Expr):
        if guard.args:  # a call that holds from there on
            yield culprit.written("leave gradients switched on", guard.args[0], "True")
    elif guard is not None and culprit.dotted(guard) in GUARDS:
        enabled = culprit.torch("torch.enable_grad()")
        yield culprit.written("record the graph of what has to learn", guard, enabled)


def _handed_out_after(culprit: Culprit) -> Iterator[Candidate]:
    """`yield` behind `with torch.no_grad():`, which holds for whoever takes the value."""
    source = culprit.source
    around = source.nodes.statement(culprit.node) if culprit.node is not None else None
    if not isinstance(around, ast.With) or len(around.body) < 2:
        return
    last = around.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Yield):
        start, end = source.offset(last.lineno, 0), source.extent(last)[1]
        text = source.of(last)
        if "\n" not in text:
            edit = source.edit(start, end, f"{source.indent(around.lineno)}{text}")
            yield Candidate("hand the value out once gradients are switched on again", (edit,))


def _without_inference(culprit: Culprit) -> Iterator[Candidate]:
    """`torch.no_grad()` for `torch.inference_mode()`."""
    guard = culprit.call.func if culprit.call is not None else culprit.node
    if isinstance(guard, ast.expr) and culprit.dotted(guard) == "torch.inference_mode":
        yield culprit.written("compute it under `no_grad`", guard, culprit.torch("torch.no_grad"))


def _uncast(culprit: Culprit) -> Iterator[Candidate]:
    """`x` for `x.to(torch.uint8)` and `x.long()`."""
    match culprit.node:
        case ast.Call(func=ast.Attribute(value, name)) as node if name in _CASTS:
            yield culprit.written("leave the values as floats", node, culprit.source.of(value))


def _with_graph(culprit: Culprit) -> Iterator[Candidate]:
    """`torch.autograd.grad(out, x, create_graph=True)`, and the same for a Jacobian."""
    node = culprit.call
    if node is not None and culprit.dotted(node).startswith(DERIVATIVES):
        edit = keyword(culprit.source, node, "create_graph", "True")
        yield Candidate("ask for the gradient with its graph", (edit,))


def _required(culprit: Culprit, name: str) -> Iterator[Candidate]:
    """`torch.tensor(values, requires_grad=True)`, `x.requires_grad_()`, and that of a parameter at
    the top of its function."""
    source, node, dotted = culprit.source, culprit.node, culprit.dotted(culprit.call)
    edits: tuple[Edit, ...] = ()
    if dotted == "torch.autograd.grad":
        edits = rebound(culprit, {name}, "{x}.requires_grad_()")
    elif isinstance(node, ast.Call) and dotted in FACTORIES:
        edits = (keyword(source, node, "requires_grad", "True"),)
    elif isinstance(node, ast.expr):
        text = f"{culprit.text(node)}.requires_grad_()"
        edits = (source.replaced(node, text),)
    what = f"`{name}`" if name else "the tensor"
    yield Candidate(f"let {what} require a gradient", edits)


def _earlier(culprit: Culprit) -> Iterator[Candidate]:
    """`x.requires_grad_()` before the first statement that reads `x`."""
    source, reads = culprit.source, culprit.statement
    if reads is None:
        return
    block = block_of(source, reads)
    for one in block[block.index(reads) + 1 :]:
        call = one.value if isinstance(one, ast.Expr) else None
        written = call.func if isinstance(call, ast.Call) else None
        if isinstance(one, ast.Assign) and getattr(one.value, "value", None) is True:
            written = one.targets[0]
        if not isinstance(written, ast.Attribute) or not written.attr.startswith("requires_grad"):
            continue
        name = source.of(written.value)
        if any(source.of(node) == name for node in parts(reads, ast.expr)):
            edits = (*before(source, reads, commented(source, one)), dropped(source, one))
            yield Candidate(f"let `{name}` require a gradient before it is read", edits)
            return


def _thawed(culprit: Culprit) -> Iterator[Candidate]:
    """`requires_grad = True`, `requires_grad_(True)`; not in a function that freezes what it is
    given, since others may give it what is to be frozen."""
    source, place = culprit.source, culprit.finding.location
    loops = loops_around(source, culprit.statement)
    frozen = (loop.iter for loop in loops if isinstance(loop, ast.For))
    if any(_is_given(source, one) for many in frozen for one in parts(many, ast.Name)):
        return
    for node in source.nodes.every(ast.Constant):
        if place is None or node.value is not False or node.lineno != place.line:
            continue
        if isinstance(source.nodes.statement(node), ast.Assign | ast.Expr):
            yield Candidate("leave `requires_grad` on", (source.replaced(node, "True"),))


def _is_given(source: Source, name: ast.Name) -> bool:
    """Whether a name is a parameter of a function, and not of a method."""
    given = binding(source, name)
    function = given.statement if given is not None else None
    if not isinstance(function, ast.FunctionDef):
        return False
    return not isinstance(source.parents[function], ast.ClassDef)


def _registered(culprit: Culprit) -> Iterator[Candidate]:
    """`self.layers = nn.ModuleList([...])`, `self.scale = nn.Parameter(...)`."""
    location = culprit.finding.location
    made = culprit.source.nodes.every(ast.Assign)
    here = [one for one in made if location and one.lineno == location.line]
    if location is None or not here:
        return
    assignment = min(here, key=lambda one: abs(one.col_offset - location.col))
    whole = list(whole_parameter(culprit, assignment))
    yield from whole
    if whole:
        return
    kinds: tuple[str, ...] = ("Parameter", "ModuleList", "ParameterList")
    if isinstance(assignment.value, ast.Dict | ast.DictComp):
        kinds = ("ModuleDict", "ParameterDict")
    elif isinstance(assignment.value, ast.List | ast.ListComp | ast.Tuple):
        kinds = ("ModuleList", "ParameterList")
    for kind in kinds:
        holder = culprit.names.spell(f"torch.nn.{kind}")
        if holder is not None:
            text = f"{holder}({culprit.source.of(assignment.value)})"
            yield culprit.written(f"hold what has to learn in `{holder}`", assignment.value, text)


def _written_into(culprit: Culprit) -> Iterator[Candidate]:
    """`self.centres.data.copy_(start)` for `self.centres = nn.Parameter(start)`."""
    match made := culprit.statement:
        case ast.Assign(targets=[target, *_], value=ast.Call(args=[start, *_]) as value):
            if culprit.dotted(value) in PARAMETERS:
                of = culprit.source.of
                text = f"{of(target)}.data.copy_({of(start)})"
                title = "write the values into the parameter that is there"
                yield Candidate(title, (culprit.source.replaced(made, text),))


def _made_once(culprit: Culprit) -> Iterator[Candidate]:
    """The parameter of `__init__`, without the new one that another method puts in its place; what
    that one is computed from it gets a name."""
    source, made = culprit.source, culprit.statement
    targets = [source.of(one.targets[0]) for one in source.nodes.every(ast.Assign)]
    if not isinstance(made, ast.Assign) or targets.count(source.of(made.targets[0])) < 2:
        return
    (target, value), title = (made.targets[0], made.value), "keep the parameter that is there"
    given = value.args[0] if isinstance(value, ast.Call) and value.args else value
    text = source.of(target)
    reads = [one for one in parts(given, ast.expr) if source.of(one) == text]
    if not reads or _unwrapped_value(given) in reads:
        yield Candidate(title, (dropped(source, made),))
    elif isinstance(target, ast.Attribute):
        name, function = target.attr, source.nodes.function(made)
        inside = [one for one in ast.walk(function) if isinstance(one, ast.Name | ast.Attribute)]
        later = [one for one in inside if source.of(one) == text and one.lineno > made.lineno]
        if name not in names_in(function):
            edits = [culprit.replace(one, name) for one in later]
            first = culprit.source.replaced(made, f"{name} = {source.of(given)}")
            yield Candidate(title, (first, *edits))


def _unwrapped_value(node: ast.expr) -> ast.expr:
    """`x` of `x.detach().clone()` and of `x.data`."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        else:
            return node


def _not_reentrant(culprit: Culprit) -> Iterator[Candidate]:
    if culprit.call is not None:
        edit = keyword(culprit.source, culprit.call, "use_reentrant", "False")
        yield Candidate("checkpoint with `use_reentrant=False`", (edit,))


def _second_constant(culprit: Culprit) -> Iterator[Candidate]:
    """`x - old.detach()` for `x - old`, where both are one tensor."""
    second = culprit.operands.get("other")
    if second is not None:
        text = culprit.text(second)
        yield culprit.written(f"take `{text}` as a constant", second, f"{text}.detach()")


# By what ends the gradient.
_WAYS: Mapping[NoGradient, tuple[Callable[[Culprit], Iterator[Candidate]], ...]] = {
    NoGradient.DETACH: (_cut_later, in_torch, _attached),
    NoGradient.ZERO_OP: (_straight_through,),
    NoGradient.STRAIGHT_THROUGH: (_past_the_choice,),
    NoGradient.SAMPLED: (_reparametrised, _straight_through),
    NoGradient.NEAREST: (_interpolated,),
    NoGradient.NUMBER: (kept,),
    NoGradient.REWRAPPED: (_unwrapped,),
    NoGradient.NO_GRAD: (_handed_out_after, _enabled),
    NoGradient.INFERENCE: (_without_inference,),
    NoGradient.INTEGER: (_uncast, _undecided),
    NoGradient.CONSTANT: (_with_graph,),
    NoGradient.PIECEWISE_LINEAR: (smoothed,),
    NoGradient.CHECKPOINT: (_not_reentrant,),
    NoGradient.FROZEN: (_thawed,),
    NoGradient.LATE: (_earlier,),
    NoGradient.UNREGISTERED: (_registered,),
    **dict.fromkeys((NoGradient.STALE, NoGradient.REPLACED, NoGradient.ADDED), (made_later,)),
    NoGradient.REMADE: (_made_once,),
    NoGradient.SWAPPED: (_written_into,),
    NoGradient.ZERO_WEIGHT: (away_from_zero,),
    NoGradient.ITSELF: (_second_constant,),
}


def reconnected(culprit: Culprit, request: ask.Reattach) -> Iterator[Candidate]:
    if request.reason is NoGradient.LEAFLESS:
        yield from _required(culprit, request.name)
    for write in _WAYS.get(request.reason, ()):
        yield from write(culprit)
