"""Distributions given the logits that their probabilities are made of, and the slope of what a
sample was squashed by."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from gradscope.facts import Edit
from gradscope.facts import requests as ask
from gradscope.repair.write.composites import logits
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.forms import fit
from gradscope.repair.write.logs import log_of
from gradscope.repair.write.reading import Reading, term
from gradscope.repair.write.statements import left_over
from gradscope.rules.wording import proposals

_MODULE = "torch.distributions."
Form = Callable[[Reading, ast.expr], str | None]


def by_logits(culprit: Culprit, request: ask.GiveLogits) -> Iterator[Candidate]:
    """`Categorical(logits=z)` for `Categorical(softmax(z))`, wherever the file makes one."""
    from torch import distributions  # a saved trace is read without torch

    for call in culprit.source.nodes.every(ast.Call):
        dotted = culprit.dotted(call)
        kind: Any = getattr(distributions, dotted.rpartition(".")[2], None)
        is_kind = isinstance(kind, type) and issubclass(kind, distributions.Distribution)
        given = _probabilities(kind, call) if dotted.startswith(_MODULE) and is_kind else None
        if given is None:
            continue
        is_rows = kind.arg_constraints.get("probs") is distributions.constraints.simplex
        edits = _given_logits(culprit, _scores if is_rows else _logits, *given)
        yield Candidate(proposals.BY_LOGITS.format(kind=kind.__name__), edits)


def squashed(culprit: Culprit) -> Iterator[Candidate]:
    """`1 - tanh(x) ** 2` for `1 - y ** 2` with `y = tanh(x) * c`: it is the slope of the `tanh`
    alone, and below 0 where the factor is above 1."""
    for node in culprit.operands.values():
        read = Reading(culprit, node)
        for slope in ("1 - y ** 2 + e", "1 - y ** 2"):
            y = (fit(read, slope, node) or {}).get("y")
            for scaled in ("tanh(x) * c", "tanh(x) * c + d") if y is not None else ():
                if y is not None and (parts := fit(read, scaled, y)) is not None:
                    text = read.form(lambda read, x: f"torch.tanh({read.text(x)})", parts["x"])
                    if text is not None:
                        yield Candidate(proposals.SQUASHED, (culprit.replace(y, text),))
                        return


def _probabilities(kind: Any, call: ast.Call) -> tuple[ast.expr, ast.keyword | None] | None:
    """What a distribution is given as `probs`, and the keyword; None where it takes none, or no
    logits."""
    named = next((one for one in call.keywords if one.arg == "probs"), None)
    parameters = list(inspect.signature(kind).parameters)
    if not {"probs", "logits"} <= {*parameters}:
        return None
    if named is not None:
        return named.value, named
    at = parameters.index("probs")
    # Behind a keyword no argument can stand by its place.
    is_last = len(call.args) == at + 1 and not any(isinstance(a, ast.Starred) for a in call.args)
    return (call.args[at], None) if is_last else None


def _given_logits(
    culprit: Culprit, form: Form, given: ast.expr, named: ast.keyword | None
) -> tuple[Edit, ...]:
    for in_place in (False, True):
        read = Reading(culprit, given, in_place)
        text, others = read.form(form, given), read.edits()
        if text is None or "\n" in text or read.misread() or others is None:
            continue
        text = culprit.torch(text)
        start, past = culprit.source.extent(given)
        if named is not None:
            start = culprit.source.offset(named.lineno, named.col_offset)
        edit = culprit.source.edit(start, past, f"logits={text}")
        return (*others, *left_over(culprit, given, text), edit)
    return ()


def _scores(read: Reading, node: ast.expr) -> str | None:
    """z of `softmax(z)` over the last dimension, or over the second one of two."""
    if (text := read.rewrite(node, lambda given: _scores(read, given))) is not None:
        return text
    found = read.op(node, "softmax")
    return read.text(found.positional[0]) if found and read.dim(found) in ("-1", "1") else None


def _logits(read: Reading, node: ast.expr) -> str | None:
    """z of a sigmoid, and log(a) - log(b) of a / (a + b), which rounds to 1."""
    if (text := read.rewrite(node, lambda given: _logits(read, given))) is not None:
        return text
    if (operand := read.argument(node, "sigmoid")) is not None:
        return read.text(operand)
    parts = fit(read, "a / (b + c)", node)
    if parts is None:
        return logits(read, node)
    above = parts["a"]
    others = [one for one in (parts["b"], parts["c"]) if not read.same(above, one)]
    if len(others) != 1:
        return None
    first, second = (log_of(read, one) or read.log(one) for one in (above, others[0]))
    return f"{first} - {term(second)}"
