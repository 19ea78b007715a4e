"""Reductions over nothing, spreads over one item, and softmax over rows that hold only -inf."""

import ast
import math
from collections.abc import Iterator

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.repair.write.culprit import Candidate, Culprit, Ways, can_repeat, infinity
from gradscope.repair.write.cycles import loops_around
from gradscope.repair.write.splice import before, commented, keyword, whole_lines
from gradscope.repair.write.statements import within
from gradscope.source import definition
from gradscope.source.arguments import argument, called, canonical, spelled
from gradscope.source.tree import parts

# The parameters of torch's attention and transformer modules.
_PADDING = tuple(f"{of}key_padding_mask" for of in ("", "src_", "tgt_", "memory_"))


def filled(culprit: Culprit, request: ask.AllowEmpty) -> Iterator[Candidate]:
    """The guards for what an op does with nothing, by what is written at the culprit."""
    found = spelled(culprit.source, culprit.node)
    if not found:
        return
    if found.name in ("std", "var"):
        yield from _spread(culprit)
    elif found.name == "mean":
        yield from _unlisted(culprit)
        yield from _mean(culprit)
    elif found.name in ("cross_entropy", "nll_loss"):
        yield from _ignored(culprit)
    elif canonical(culprit.finding.op) in ("nll_loss", "nll_loss2d"):
        yield from _criterion(culprit)
    elif has(culprit.finding.op, Trait.AVERAGES):
        yield from _nothing_to_compare(culprit)
    elif has(found.name, Trait.SOFTMAX):
        yield from _rows(culprit)
    yield from _attention(culprit)


def left_out(culprit: Culprit, request: ask.LeaveOutNothing) -> Ways:
    """`continue` in front of `farther.min()`, in a loop; and for `torch.stack(losses).mean()` a 0
    that is still part of the graph."""
    source, node, operand = culprit.source, culprit.call, culprit.operands.get("self")
    if node is None or operand is None or not can_repeat(culprit, operand):
        return
    statement, test = source.nodes.statement(node), culprit.text(operand)
    if not request.joins:
        test += ".numel()"
    elif isinstance(statement, ast.Return | ast.Assign) and statement.value and request.graph:
        written = f"{source.of(statement.value)} if {test} else {request.graph}.sum() * 0"
        yield culprit.written("let the loss over nothing be 0", statement.value, written)
    yield from _left_out(culprit, test)


def _spread(culprit: Culprit) -> Iterator[Candidate]:
    """One item has no spread: divide by the count there, by the count less one elsewhere."""
    call, operand = culprit.call, culprit.operands.get("self")
    if call is None or operand is None or not can_repeat(culprit, operand):
        return
    count = f"{culprit.text(operand)}.numel()"
    dim = culprit.operands.get("dim")
    if dim is not None:
        dims = dim.elts if isinstance(dim, ast.Tuple | ast.List) else [dim]
        shape = f"{culprit.text(operand)}.shape"
        count = " * ".join(f"{shape}[{culprit.source.of(one)}]" for one in dims)
    correction = f"min(1, {count} - 1)"
    if (old := argument(call, "unbiased")) is not None:
        start, end = culprit.source.extent(old)
        edit = culprit.source.edit(start - len("unbiased="), end, f"correction={correction}")
    else:
        edit = keyword(culprit.source, call, "correction", correction)
    yield Candidate("let the spread of a single item be 0", (edit,))
    if dim is not None and {*culprit.operands} <= {"self", "dim"}:
        nothing = f"{culprit.text(operand)}.sum({culprit.source.of(dim)}) * 0"
        written = f"{culprit.source.of(call)} if {count} > 1 else {nothing}"
        title = "let the spread of fewer than two items be 0"
        yield culprit.written(title, call, written)


def _mean(culprit: Culprit) -> Iterator[Candidate]:
    """The mean of nothing is 0 / 0: divide the sum by at least 1."""
    call, operand = culprit.call, culprit.operands.get("self")
    if call is None or operand is None or not can_repeat(culprit, operand):
        return
    text, dim = culprit.text(operand), culprit.operands.get("dim")
    if dim is not None:
        yield from _left_out(culprit, f"{text}.numel()")
    if len(culprit.operands) == 1:
        new = f"{text}.sum() / max({text}.numel(), 1)"
        yield culprit.written("let the mean of nothing be 0", call, new)
    elif dim is not None and len(culprit.operands) == 2 and not isinstance(dim, ast.Tuple):
        along = culprit.source.of(dim)
        new = f"{text}.sum({along}) / max({text}.shape[{along}], 1)"
        yield culprit.written("let the mean of nothing be 0", call, new)


def _left_out(culprit: Culprit, test: str) -> Iterator[Candidate]:
    """`continue` in front of `mean = x[y == c].mean(0)`, in a loop that is not the training."""
    source, statement = culprit.source, culprit.statement
    for loop in loops_around(source, statement)[:1] if statement is not None else ():
        if not any(called(one) in ("backward", "step") for one in parts(loop, ast.Call)):
            lines = f"if not {test}:", "    continue"
            yield Candidate(
                "leave out what there is nothing for", before(source, statement, *lines)
            )


def _unlisted(culprit: Culprit) -> Iterator[Candidate]:
    """`if x[m].numel():` around `means.append(x[m].mean())`, in a loop: a mean of nothing is none
    of those that are averaged then."""
    source, operand, listed = culprit.source, culprit.operands.get("self"), culprit.statement
    lines = whole_lines(source, listed) if listed is not None else None
    if operand is None or listed is None or lines is None or not loops_around(source, listed):
        return
    match listed:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[_])):
            selected = next((one for one in parts(operand, ast.Subscript)), operand)
            if can_repeat(culprit, selected):
                opening = f"if {culprit.text(selected)}.numel()"
                text = within(source, opening, listed, commented(source, listed))
                line = f"{source.indent(listed.lineno)}{text}{source.newline}"
                yield Candidate("leave out what there is nothing for", (source.edit(*lines, line),))


def _ignored(culprit: Culprit) -> Iterator[Candidate]:
    """The mean over targets that are all ignored is 0 / 0: divide the sum by at least 1."""
    call, target = culprit.call, culprit.operands.get("target")
    if call is None or target is None or "reduction" in culprit.operands:
        return
    if not can_repeat(culprit, target):
        return
    weight = culprit.operands.get("weight")
    if weight is not None:
        if can_repeat(culprit, weight) and "ignore_index" not in culprit.operands:
            counts = f"{culprit.text(weight)}[{culprit.source.of(target)}].any()"
            yield from _only_if(culprit, call, counts)
        return
    ignored = culprit.operands.get("ignore_index")
    index = culprit.source.of(ignored) if ignored is not None else "-100"
    count = f"({culprit.source.of(target)} != {index}).sum().clamp(min=1)"
    end = culprit.source.extent(call)[1]
    edits = (
        keyword(culprit.source, call, "reduction", '"sum"'),
        culprit.source.edit(end, end, f" / {count}"),
    )
    yield Candidate("let the loss over nothing but ignored targets be 0", edits)


def _nothing_to_compare(culprit: Culprit) -> Iterator[Candidate]:
    """A loss that averages over elements: 0 where there are none."""
    call = culprit.call
    if call is not None and len(call.args) > 1 and can_repeat(culprit, call.args[1]):
        counts = f"{culprit.text(call.args[1])}.numel()"
        yield from _only_if(culprit, call, counts, "let the loss over nothing be 0")


def _criterion(culprit: Culprit) -> Iterator[Candidate]:
    """The same for a loss module: `criterion(logits, labels)`."""
    call = culprit.call
    if call is None or len(call.args) != 2 or call.keywords:
        return
    target = call.args[1]
    if can_repeat(culprit, target) and isinstance(call.func, ast.Name | ast.Attribute):
        module = culprit.source.of(call.func)
        counts = f"({culprit.source.of(target)} != {module}.ignore_index).any()"
        yield from _only_if(culprit, call, counts)


def _only_if(
    culprit: Culprit,
    call: ast.Call,
    counts: str,
    title: str = "let the loss be 0 where no target counts",
) -> Iterator[Candidate]:
    """The loss where some target counts, else a 0 that is still part of the graph."""
    nothing = f"{culprit.text(call.args[0])}.sum() * 0" if call.args else ""
    if nothing and can_repeat(culprit, call.args[0]):
        yield culprit.written(title, call, f"{culprit.source.of(call)} if {counts} else {nothing}")


def _rows(culprit: Culprit) -> Iterator[Candidate]:
    """Rows of nothing but -inf: the most negative finite number gives them equal weights, and
    leaves every other row bit-identical, since exp underflows to 0 there all the same."""
    title = "give rows that are masked everywhere equal weights instead of 0 / 0"
    if has(culprit.finding.op, Trait.LOG_SUMS):
        title = "let the logarithm of a sum of nothing be a large negative number in place of -inf"
    operand = culprit.operands.get("self") or culprit.operands.get("attn_mask")
    if operand is None or isinstance(operand, ast.Constant):
        return
    for edit in _fills(culprit, operand):
        yield Candidate(title, (edit,))
    text, lowest = culprit.text(operand), _lowest(culprit, operand)
    yield culprit.written(title, operand, f"{text}.clamp_min({lowest})")


def _fills(culprit: Culprit, operand: ast.expr) -> Iterator[Edit]:
    """Every -inf that a mask fills in, in the operand or in what its name stands for."""
    meaning = definition(culprit.source, operand) if isinstance(operand, ast.Name) else operand
    for node in ast.walk(meaning) if meaning is not None else ():
        found = spelled(culprit.source, node)
        if found.name not in ("masked_fill", "where"):
            continue
        scores = found.positional[0] if found.name == "masked_fill" else found.positional[1]
        for value in (*found.positional[1:], *found.keywords.values()):
            if infinity(culprit, value) == -math.inf:
                yield culprit.replace(value, _lowest(culprit, scores))


def _lowest(culprit: Culprit, scores: ast.expr) -> str:
    """The most negative finite number of the scores' dtype, as text."""
    if isinstance(scores, ast.Name | ast.Attribute):
        return f"{culprit.torch('torch.finfo(')}{culprit.source.of(scores)}.dtype).min"
    return {"float16": "-65504.0", "bfloat16": "-3e38"}.get(culprit.dtype, "-1e30")


def _attention(culprit: Culprit) -> Iterator[Candidate]:
    """A padding mask that hides every key of a sample: hide none of them there."""
    edits = []
    for given in culprit.call.keywords if culprit.call is not None else ():
        if given.arg in _PADDING and not isinstance(given.value, ast.Constant):
            text = culprit.text(given.value)
            new = f"{text} & ~{text}.all(-1, keepdim=True)"
            edits.append(culprit.replace(given.value, new))
    yield Candidate("unmask the rows whose keys are all masked", tuple(edits))
