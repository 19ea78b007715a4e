"""Composite expressions at the culprit, put into their stable form; and a loss that is flat where a
probability is low, put into the one that is steep there."""

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import partial

from gradscope.facts import Flat
from gradscope.facts import requests as ask
from gradscope.repair.write import ends, recurrences
from gradscope.repair.write.composites import FORMS, Form
from gradscope.repair.write.culprit import Candidate, Culprit, Ways, can_repeat
from gradscope.repair.write.forms import in_form
from gradscope.repair.write.reading import Reading, atom
from gradscope.repair.write.splice import keyword
from gradscope.repair.write.statements import left_over
from gradscope.repair.write.uses import calls_around, reads_of_argument, returned
from gradscope.rules.wording import proposals
from gradscope.source import definition
from gradscope.source.arguments import canonical, spelled
from gradscope.source.spans import targets_of

LONGEST_TEXT = 80  # characters of a form that are one line's worth
DEEPEST = 8  # ops from the culprit to the end of its expression: no form has more


def rewritten(culprit: Culprit, request: ask.StableForm) -> Iterator[Candidate]:
    """Every expression of the culprit's function that has a stable form and holds the culprit, the
    largest first: its form repairs more than the culprit."""
    if request.place is not None:
        culprit = replace(culprit, node=culprit.at(request.place))
    if canonical(culprit.finding.op) == "ctc_loss":
        yield from with_zero_infinity(culprit)
        return
    written = spelled(culprit.source, culprit.node)
    forms = tuple(form for form in FORMS if written.name in form.ops)
    ops = frozenset(op for form in forms for op in form.ops)
    around = _made_of(culprit, culprit.node, ops) if isinstance(culprit.node, ast.expr) else []
    for node, op in around:
        for form in forms:
            candidate = _written(culprit, node, form) if op in form.ends else None
            if candidate is not None:
                yield candidate
                if not form.is_special:
                    break
    yield from ends.both(culprit)
    yield from recurrences.in_logarithms(culprit)
    yield from recurrences.shifted(culprit)


def _written(culprit: Culprit, node: ast.expr, form: Form) -> Candidate | None:
    """The form of an expression in one line; where that gets too long, in the lines in which its
    parts are."""
    text = _text(plain := Reading(culprit, node), node, form)
    if text is None or len(text) > LONGEST_TEXT:
        reading = Reading(culprit, node, in_place=True)
        while (shorter := _text(reading, node, form)) is not None:
            misread = reading.misread()
            if misread and _read_alike(reading, misread, form):
                misread = reading.misread()
            if not misread:
                return _candidate(culprit, node, shorter, reading)
            reading = Reading(culprit, node, in_place=True, apart=reading.apart | {*misread})
    return _candidate(culprit, node, text, plain) if text is not None else None


def _read_alike(
    reading: Reading, misread: Mapping[ast.expr, tuple[ast.expr, ...]], form: Form
) -> bool:
    """Whether all others that read what was rewritten end in the same op, and are written without
    it as well."""
    for places in misread.values():
        ends = [next(_ends(reading.culprit, place, form), None) for place in places]
        if not ends or not all(one is not None and reading.also(form.write, one) for one in ends):
            return False
    return True


def _ends(culprit: Culprit, node: ast.expr, form: Form) -> Iterator[ast.expr]:
    """The ends of the expressions that are made of a node, the nearest first."""
    return (one for one, op in reversed(_made_of(culprit, node, form.ops)) if op in form.ends)


def _text(reading: Reading, node: ast.expr, form: Form) -> str | None:
    template = reading.form(form.write, node)
    if template is None or reading.culprit.node not in reading.seen:
        return None
    text = reading.culprit.torch(template)
    return None if "\n" in text else text


def _candidate(culprit: Culprit, node: ast.expr, text: str, reading: Reading) -> Candidate | None:
    """The text in the place of a node, and what else the reading has written otherwise."""
    given_as = (culprit.source.parents[one] for one in reading.rewritten)
    if reading.has_plain_log and any(isinstance(one, ast.Call | ast.keyword) for one in given_as):
        return None  # what a caller gives may be 0, as a mask or a share: it has no logarithm
    written_to = culprit.written_by(node)
    if written_to is not None:
        if not can_repeat(culprit, written_to):
            return None
        text = f"{culprit.text(written_to)}.copy_({text})"
    if (others := reading.edits()) is None:
        return None
    edits = (culprit.replace(node, text), *left_over(culprit, node, text), *others)
    template = proposals.IN_LOGARITHMS if reading.rewritten else proposals.STABLE
    # The weights of a row that a mask leaves empty are for another fix to say.
    alone = reading.has_plain_log and culprit.finding.name == "zero-division"
    return Candidate(template.format(text=text), edits, alone=alone)


def with_zero_infinity(culprit: Culprit) -> Iterator[Candidate]:
    """CTC has no alignment for a target longer than its input, and an argument that says so."""
    for node in culprit.calls(("torch.nn.functional.ctc_loss", "torch.nn.CTCLoss")):
        edit = keyword(culprit.source, node, "zero_infinity", "True")
        yield Candidate("let samples without any alignment count as 0", (edit,))


def _made_of(culprit: Culprit, part: ast.expr, ops: Set[str]) -> list[tuple[ast.expr, str]]:
    """A node and the expressions that are made of it by some ops, also on later lines through a
    name for it, with the op that each writes; the largest first."""
    found: list[tuple[ast.expr, str]] = []
    waiting: deque[tuple[ast.AST, int]] = deque([(part, 0)])
    seen: set[ast.AST] = set()
    while waiting and not culprit.search.is_over:
        node, depth = waiting.popleft()
        op = spelled(culprit.source, node)
        if node in seen or depth > DEEPEST or not isinstance(node, ast.expr):
            continue
        seen.add(node)
        if op.name in ops:
            found.append((node, op.name))
        elif depth and not isinstance(node, ast.Name | ast.Subscript):
            if not isinstance(node, ast.Call) or returned(culprit.source, node) is None:
                continue
        waiting += ((one, depth + 1) for one in above(culprit, node))
    return found[::-1]


def above(culprit: Culprit, node: ast.expr) -> Iterator[ast.AST]:
    """What an expression is an operand of, or the places that read it: by its name, where its
    function is called, or as a parameter."""
    source, around = culprit.source, culprit.source.parents[node]
    # Of `node.log()` and `cat([node])` the call.
    while isinstance(around, ast.Attribute | ast.keyword | ast.List | ast.Tuple):
        around = source.parents[around]
    yield around
    if isinstance(around, ast.Return):
        yield from calls_around(source, node)
    if isinstance(around, ast.Call):
        yield from reads_of_argument(source, around, node)
    if isinstance(around, ast.Assign | ast.AnnAssign):
        for target in targets_of(source, node):
            if isinstance(target, ast.Name):
                reads = source.nodes.reads(target)
                yield from (one for one in reads if definition(source, one) is node)


_FAR = 32  # expressions from the culprit to the loss that it is a part of
_NEGATED = {"softplus(z)": "-torch.nn.functional.softplus(-{z:atom})"}
_LOSSES = {
    "log(1 - sigmoid(z))": "-torch.nn.functional.logsigmoid({z})",
    "log(1 - sigmoid(z) + eps)": "-torch.nn.functional.logsigmoid({z})",
    "log(1 - p)": "-torch.log({p:atom})",
    "log(1 - p + eps)": "-torch.log({p:atom} + {eps})",
    "logsigmoid(-z)": "-torch.nn.functional.logsigmoid({z})",
}


def opposite(culprit: Culprit, request: ask.Unsaturated) -> Ways:
    """`-logsigmoid(z)` for `log(1 - sigmoid(z))`, `-log(p)` for `log(1 - p)`, and `f(p, 1 - y)` for
    `-f(p, y)`, wherever the culprit, or a call that led to it, is a part of one of these."""
    for node in _parts_of(culprit, request.flat):
        raised = partial(_raised, negated=_is_negated(culprit, node))
        template = Reading(culprit, node).form(raised, node)
        if template is not None:
            yield (culprit.replace(node, culprit.torch(template)),)


def _parts_of(culprit: Culprit, flat: Flat) -> Iterator[ast.expr]:
    """The expressions that it is in, also by the names for them, the innermost first; then those
    that use it elsewhere."""
    calls = flat.call, *flat.uses
    starts = [culprit.node, *(culprit.at(one) for call in calls for one in call.frames)]
    waiting: list[ast.AST] = [one for one in starts if one is not None]
    seen: set[ast.AST] = set()
    while waiting and len(seen) < _FAR:
        node = waiting.pop(0)
        if node not in seen and isinstance(node, ast.expr):
            seen.add(node)
            waiting += above(culprit, node)
            yield node


def _raised(read: Reading, node: ast.expr, *, negated: bool) -> str | None:
    """What is steep where `node` is flat, which goes into the loss `negated` or not; None where it
    is no such loss."""
    found = spelled(read.culprit.source, node)
    if found.name == "neg" and isinstance(loss := found.first, ast.Call) and not negated:
        if len(loss.args) > 1:  # a loss of the same kind with the opposite of the label
            label = loss.args[1]
            return read.culprit.source.written(loss, {label: f"1 - {atom(read.text(label))}"})
    return in_form(read, _NEGATED if negated else _LOSSES, node)


def _is_negated(culprit: Culprit, node: ast.expr) -> bool:
    """Whether it goes into its statement with the other sign."""
    negated = False
    source, parent = culprit.source, culprit.source.parents.get(node)
    while isinstance(parent, ast.expr):
        is_minus = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub)
        is_taken = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub)
        negated ^= is_minus or (is_taken and getattr(parent, "right", None) is node)
        node, parent = parent, source.parents.get(parent)
    return negated
