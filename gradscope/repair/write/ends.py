"""Probabilities that are made at one place, and their logarithm that is taken at another: both ends
are edited, and every other reader keeps the value that it had.

`softmax` becomes `log_softmax`, and `log(p)` becomes `p`. A `sigmoid` goes to the readers, as
`logsigmoid` of the logits: of log(p) alone, 1 - p could not be told any more.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gradscope.facts import Ancestor, Call, Edit
from gradscope.facts import requests as ask
from gradscope.ops.patterns import EPSILON
from gradscope.ops.traits import Trait, has
from gradscope.repair.write.composites import logits, softmax
from gradscope.repair.write.culprit import Candidate, Culprit, Ways
from gradscope.repair.write.forms import in_form
from gradscope.repair.write.reading import Reading, atom, negative
from gradscope.repair.write.splice import keyword, whole_lines
from gradscope.repair.write.statements import block_of, dropped, left_over, without_last
from gradscope.repair.write.uses import Uses, calls_around, calls_of, given_to, returned
from gradscope.rules.reading import evidence
from gradscope.source.arguments import argument, arguments_of, called, canonical, spelled
from gradscope.source.spans import ancestors, user_of

_MADE_BY = {"softmax": "log-probabilities", "sigmoid": "logits", "exp": "the exponent"}
_INDICES = ("argmax", "argmin", "argsort")
_WITH_INDICES = ("max", "min", "sort", "topk")
# The chance of what came out, of two: the sigmoid of the logit, or of its negative.
_CHOICES = {
    "where(c, p, 1 - p)": "torch.where({c}, {p}, {p:negative})",
    "where(c, 1 - p, p)": "torch.where({c}, {p:negative}, {p})",
    "p * t + (1 - p) * (1 - t)": "{p:atom} * (2 * {t:atom} - 1)",
}
_DEEPEST = 4  # operands between a probability and the choice
# What takes log-probabilities, and what makes them of scores first.
_NORMALISING = {
    "torch.nn.functional.nll_loss": "cross_entropy",
    "torch.nn.NLLLoss": "CrossEntropyLoss",
}
MODULES = {
    "softmax": "torch.nn.Softmax",
    "log_softmax": "torch.nn.LogSoftmax",
    "sigmoid": "torch.nn.Sigmoid",
    "relu": "torch.nn.ReLU",
    "tanh": "torch.nn.Tanh",
    "exp": "",
}


def both(culprit: Culprit) -> Iterator[Candidate]:
    """Where the run has seen that the culprit takes the logarithm of one of these."""
    call = _made(culprit)
    kind = canonical(call.op) if call is not None else ""
    made = culprit.at(call.location) if call is not None else None
    if isinstance(made, ast.BinOp):
        yield from _by_hand(culprit, made)
    if kind not in _MADE_BY or not isinstance(made, ast.Call):
        return
    module = layer(culprit, made, MODULES[kind])
    calls = calls_of(culprit.source, module) if module is not None else (made,)
    change = _log_softmax if kind == "softmax" else left_away
    giver = culprit.source.of(made.func) if module is not None else ""
    yield from _rewritten(culprit, kind, [change(culprit, made, module)], calls, giver)


def _by_hand(culprit: Culprit, made: ast.expr) -> Iterator[Candidate]:
    """A softmax or a sigmoid that is written out."""
    read = Reading(culprit, made)
    for kind, form in (("softmax", softmax), ("sigmoid", logits)):
        template = read.form(form, made) or ""
        if kind == "softmax" and template.count(kind) != 1:
            continue  # over several dimensions it is an exponential
        text = culprit.torch(template.replace("softmax", "log_softmax"))
        if not text or "\n" in text:
            continue
        for call, operand in _passed_through(culprit, made, text):
            yield from _rewritten(culprit, kind, [culprit.replace(call, operand)], (call,))
        edits = [culprit.replace(made, text), *left_over(culprit, made, text)]
        yield from _rewritten(culprit, kind, edits, (made,))


def _passed_through(culprit: Culprit, made: ast.expr, text: str) -> Iterator[tuple[ast.Call, str]]:
    """The calls of a function that does nothing but compute it, with what they give it: what is
    called so keeps its meaning, and is not called."""
    source = culprit.source
    function = source.nodes.function(made)
    if not isinstance(function, ast.FunctionDef) or len(function.body) > 1:
        return
    for call in calls_around(source, made):
        if (given := arguments_of(function, call).get(text)) is not None:
            yield call, source.of(given)


def _rewritten(
    culprit: Culprit,
    kind: str,
    first: Iterable[Edit | None],
    values: tuple[ast.expr, ...],
    giver: str = "",
) -> Iterator[Candidate]:
    """What makes the values edited, and all that read them."""
    uses = Uses.of(culprit.source, *values)
    if uses is None or not {*values}.isdisjoint(uses.readers):
        return
    # The end at the culprit is one of them, or this is another value.
    choices = list(_choices(culprit, uses)) if kind == "sigmoid" else []
    read_at = [*uses.readers, *(reader for one in choices for reader in one.readers)]
    taken = {_logarithm_of(culprit, reader)[0] for reader in read_at}
    taken |= {_divided_by(culprit, reader) for reader in uses.readers}
    is_sigmoid = kind == "sigmoid"
    written = _of_logits(culprit, uses, choices) if is_sigmoid else _of_logarithms(culprit, uses)
    edits = [*first, *written]
    if culprit.node not in taken or None in edits:
        return
    giver = next((function.name for function in uses.functions), giver)
    does = f"let `{giver}` give" if giver else "keep to"
    of = "what it gives" if kind == "exp" else "probabilities"
    title = f"{does} {_MADE_BY[kind]}, and take no logarithm of {of}"
    yield Candidate(title, tuple(edit for edit in edits if edit is not None))


def given_scores(culprit: Culprit, request: ask.GiveScores) -> Ways:
    """The layer or the call that makes probabilities left out, or its logarithm taken; what else
    reads these gets them all the same."""
    made = culprit.call
    if made is None:
        return
    module = layer(culprit, made, MODULES[request.op])
    change = _log_softmax if request.logarithms else left_away
    edits = [change(culprit, made, module)]
    calls = calls_of(culprit.source, module) if module is not None else (made,)
    uses, loss = Uses.of(culprit.source, *calls), culprit.at(request.taken)
    given, start = (module, 0) if module is not None else (made, 1)
    parts = (*given.args[start:], *(key.value for key in given.keywords))
    rest = [culprit.source.of(part) for part in parts]
    for reader in _of_values(culprit, uses) if uses is not None else ():
        around = (reader, *ancestors(culprit.source, reader))
        if loss is None or reader is made or any(_is_alike(one, loss) for one in around):
            continue
        text = culprit.source.of(reader)
        back = f"{atom(text)}.exp()"
        if not request.logarithms:
            back = culprit.torch(f"torch.{request.op}({', '.join((text, *rest))})")
        edits.append(culprit.replace(reader, back))
    if None not in edits:
        yield [edit for edit in edits if edit is not None]


def _is_alike(node: ast.AST, loss: ast.AST) -> bool:
    """Whether it is the loss, or one of its kind, as where an evaluation computes it too."""
    if isinstance(node, ast.Call) and isinstance(loss, ast.Call):
        return called(node) == called(loss)
    return node is loss


def scores_taken(culprit: Culprit, request: ask.TakeScores) -> Ways:
    """`cross_entropy` for every `nll_loss` of the file: of log-probabilities they are the same."""
    calls = [*culprit.calls(_NORMALISING)]
    edits = [renamed(culprit, one, _NORMALISING[culprit.dotted(one)]) for one in calls]
    if edits and None not in edits:
        yield [edit for edit in edits if edit is not None]


def scores_normalised(culprit: Culprit, request: ask.NormaliseScores) -> Ways:
    """`criterion(logits.log_softmax(-1), ...)`."""
    for given in culprit.call.args[:1] if culprit.call is not None else ():
        yield [culprit.replace(given, f"{atom(culprit.source.of(given))}.log_softmax(-1)")]


def log_target(culprit: Culprit, request: ask.LogTarget) -> Ways:
    """`log_target=True` for the call of the loss, or for the layer that it is of."""
    if culprit.call is not None:
        loss = layer(culprit, culprit.call, "torch.nn.KLDivLoss") or culprit.call
        yield (keyword(culprit.source, loss, "log_target", "True"),)


def along_classes(culprit: Culprit, request: ask.AlongClasses) -> Ways:
    """The number that says along which dimension, of the call or of the layer."""
    made = culprit.call
    if made is None:
        return
    module = layer(culprit, made, MODULES[request.op])
    listed = module.args[:1] if module else spelled(culprit.source, made).positional[1:2]
    dim = argument(module or made, "dim") or next(iter(listed), None)
    if dim is not None:
        yield [culprit.replace(dim, f"{request.dim}")]
    else:  # torch takes the first of one or three dimensions
        yield [keyword(culprit.source, module or made, "dim", f"{request.dim}")]


def _made(culprit: Culprit) -> Call | None:
    """The call that made the culprit's operand."""
    chain = culprit.finding.chain
    above = next((one for one in chain[0].ancestry if one is not None), None) if chain else None
    while above is not None and (above.call is None or _hands_on(above.call, above.inputs)):
        above = next((one for one in above.inputs if one is not None), None)
    return above.call if above is not None else None


def _hands_on(call: Call, inputs: Sequence[Ancestor | None]) -> bool:
    """Elements of its operand, 1 less them, as in log(1 - p), or times what chooses some."""
    chooses = has(call.op, Trait.CHOOSES) and not has(call.op, Trait.BY_VALUE)
    chooses |= has(call.op, Trait.MULTIPLIES) and sum(one is not None for one in inputs) == 1
    return evidence.moves(call) or chooses or has(call.op, Trait.SUBTRACTS | Trait.SHIFTS)


def layer(culprit: Culprit, call: ast.expr, name: str) -> ast.Call | None:
    """The `nn.Softmax(...)` that the module of a call ends in: itself, or a Sequential's last."""
    made = given_to(culprit.source, call.func) if isinstance(call, ast.Call) else None
    while isinstance(made, ast.Call):
        dotted = culprit.names.dotted(made.func)
        if dotted == name:
            return made
        if isinstance(made.func, ast.Attribute) and isinstance(made.func.value, ast.Call):
            made = made.func.value  # of `Sequential(...).to(device)`
        elif dotted == "torch.nn.Sequential" and made.args:
            made = made.args[-1]
        else:
            made = returned(culprit.source, made)  # by a function that builds it
    return None


def _log_softmax(culprit: Culprit, made: ast.Call, module: ast.Call | None) -> Edit | None:
    """`F.log_softmax(...)` for `F.softmax(...)`, `nn.LogSoftmax` where a module is called."""
    if module is not None:
        return renamed(culprit, module, "LogSoftmax")
    return renamed(culprit, made, "log_softmax") if _is_function(culprit, made) else None


def _is_function(culprit: Culprit, call: ast.Call) -> bool:
    """Whether an op is called, and no module whose layers the text does not tell."""
    return spelled(culprit.source, call).method or bool(culprit.names.dotted(call.func))


def renamed(culprit: Culprit, call: ast.Call, name: str) -> Edit | None:
    """Another function of the same module or tensor."""
    of = call.func
    return culprit.source.renamed(of, name) if isinstance(of, ast.Attribute) else None


def _of_logarithms(culprit: Culprit, uses: Uses) -> Iterator[Edit]:
    """The readers of what was a softmax."""
    for reader in _of_values(culprit, uses):
        text = culprit.source.of(reader)
        taken, is_complement = _logarithm_of(culprit, reader)
        if (quotient := _divided_by(culprit, reader)) is not None:
            yield _divergence(culprit, quotient, text)
        elif taken is not None and not is_complement:
            yield culprit.replace(taken, text)
        else:
            yield culprit.replace(reader, f"{atom(text)}.exp()")


def _divided_by(culprit: Culprit, reader: ast.expr) -> ast.BinOp | None:
    """The `p / q` of `log(p / q)`, for a reader q."""
    quotient = culprit.source.parents[reader]
    match quotient:
        case ast.BinOp(op=ast.Div(), right=divisor) if divisor is reader:
            around = user_of(culprit.source, quotient)
            return quotient if spelled(culprit.source, around).name == "log" else None
    return None


def _divergence(culprit: Culprit, quotient: ast.BinOp, text: str) -> Edit:
    """`kl_div(q, p)`, which is 0 where p is, for `p * log(p / q)`; else `log(p) - q`."""
    source, above = culprit.source, user_of(culprit.source, quotient)
    assert isinstance(above, ast.expr)
    product, given = source.parents[above], source.of(quotient.left)
    if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
        other = product.left if product.right is above else product.right
        if source.of(other) == given:
            call = f'torch.nn.functional.kl_div({text}, {given}, reduction="none")'
            return culprit.replace(product, culprit.torch(call))
    logarithm = culprit.torch(f"torch.log({given})")
    return culprit.replace(above, f"{logarithm} - {atom(text)}")


def left_away(culprit: Culprit, made: ast.Call, module: ast.Call | None) -> Edit | None:
    for edit in without_last(culprit.source, module):
        return edit
    operand = spelled(culprit.source, made).first
    if operand is None or (module is None and not _is_function(culprit, made)):
        return None
    operand = made.args[0] if module is not None else operand
    statement, text = culprit.source.parents[made], culprit.source.of(operand)
    if isinstance(statement, ast.Assign) and [*map(culprit.source.of, statement.targets)] == [text]:
        if len(block_of(culprit.source, statement)) > 1 and whole_lines(culprit.source, statement):
            return dropped(culprit.source, statement)
    return culprit.replace(made, text)


class _Choice(NamedTuple):
    """An expression that is p or 1 - p, with its logit, and where it is read: the expression itself
    where it has no name."""

    node: ast.expr
    logit: str
    readers: list[ast.expr]


def _choices(culprit: Culprit, uses: Uses) -> Iterator[_Choice]:
    """What a probability is read by together with its complement."""
    found = set[ast.AST]()
    for reader in uses.readers:
        for node in islice(ancestors(culprit.source, reader), _DEEPEST):
            if node in found or not isinstance(node, ast.expr):
                continue
            logit = _logit_of(culprit, reader, node)
            after = Uses.of(culprit.source, node) if logit is not None else None
            if logit is not None and after is not None:
                found.add(node)
                yield _Choice(node, culprit.torch(logit), after.readers)


def _logit_of(culprit: Culprit, chance: ast.expr, node: ast.expr) -> str | None:
    """Of a choice between this chance, and no other as soft labels are, and its complement."""
    return Reading(culprit, node).form(
        lambda read, one: in_form(read, _CHOICES, one, {"p": chance}), node
    )


def _of_logits(culprit: Culprit, uses: Uses, choices: Sequence[_Choice]) -> Iterator[Edit]:
    """The readers of what was a sigmoid."""
    texts = {one: culprit.source.of(one) for one in _of_values(culprit, uses)}
    for choice in choices:
        for reader in [*texts]:
            if choice.node in ancestors(culprit.source, reader):
                del texts[reader]
        if choice.readers == [choice.node]:
            texts[choice.node] = choice.logit
        else:
            yield culprit.replace(choice.node, choice.logit)
            texts |= {reader: culprit.source.of(reader) for reader in choice.readers}
    for reader, text in texts.items():
        taken, is_complement = _logarithm_of(culprit, reader)
        if taken is not None:
            z = negative(text) if is_complement else text
            logarithm = culprit.torch(f"torch.nn.functional.logsigmoid({z})")
            yield culprit.replace(taken, logarithm)
        else:
            yield culprit.replace(reader, culprit.torch(f"torch.sigmoid({text})"))


def _of_values(culprit: Culprit, uses: Uses) -> Iterator[ast.expr]:
    """The readers that a value itself matters to: which one is the largest, logits tell as well."""
    for reader in uses.readers:
        call = user_of(culprit.source, reader)
        found = spelled(culprit.source, call)
        is_order = found.name in _INDICES or (
            found.name in _WITH_INDICES and _is_for_indices(culprit, call)
        )
        if not (is_order and found.first is reader):
            yield reader


def _is_for_indices(culprit: Culprit, call: ast.AST) -> bool:
    """`output.max(1)[1]`, `output.max(1).indices`, `_, best = output.max(1)`."""
    match culprit.source.parents[call]:
        case ast.Subscript(slice=ast.Constant(1)) | ast.Attribute(attr="indices"):
            return True
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name("_"), *_]), *_]):
            return True
    return False


def _logarithm_of(culprit: Culprit, reader: ast.expr) -> tuple[ast.expr | None, bool]:
    """The logarithm that is taken of a reader, also with a small constant that guards it; and
    whether it is taken of 1 less the reader."""
    inner, what = reader, "itself"
    for _ in range(3):
        above = user_of(culprit.source, inner)
        found = spelled(culprit.source, above)
        if not isinstance(above, ast.expr) or inner not in found.positional:
            break
        numbers = [one.value for one in found.positional if isinstance(one, ast.Constant)]
        is_second = found.positional[-1] is inner
        match found.name, what:
            case ("log", "itself" | "complement") | ("log1p", "negative"):
                return above, what != "itself"
            case ("neg", "itself"):
                what = "negative"
            case ("sub", "itself") if is_second and numbers == [1]:
                what = "complement"
            case ("add", _) if numbers and 0 < float(str(numbers[0])) <= EPSILON:
                pass
            case _:
                break
        inner = above
    return None, False
