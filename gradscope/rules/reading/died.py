"""A model whose gradients have all become exactly 0 in the course of training: it stands still at a
loss that is not 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradscope.facts import (
    Absence,
    Finding,
    Fix,
    Leaf,
    LowerRate,
    Magnitudes,
    Phase,
    Severity,
    Step,
    Subject,
    Symptom,
    Trace,
    Trouble,
    number,
    plural,
)
from gradscope.ops.traits import Trait, has
from gradscope.rules.wording import phrases
from gradscope.rules.wording.dead_gradient_words import LABELS, WHY
from gradscope.rules.wording.proposals import proposed

LASTS = 3  # passes in a row without a gradient; batches differ, and one may be flat by chance


def has_died(leaf: Leaf) -> bool:
    """Whether it had a gradient, and has none but zeros by now."""
    return any(leaf.known) and len(leaf.known) > LASTS and not any(leaf.known[-LASTS:])


def died(trace: Trace, magnitudes: Magnitudes) -> Iterator[Finding]:
    """One finding, where no trained parameter gets a gradient any more."""
    trained = [leaf for leaf in magnitudes.leaves if leaf.trained and leaf.known]
    loss = trace.steps[-1].loss if trace.steps else None
    if not trained or not loss or not math.isfinite(loss):
        return  # a loss of 0 has no slope: training is done
    if not all(has_died(leaf) for leaf in trained):
        return
    # What a model that has come to rest is flat in. A clamp or a choice is often meant to be.
    kinds = Trait.RECTIFIES | Trait.SATURATES
    flat = [one for one in magnitudes.died if has(one.node or "", kinds)]
    if flat:
        yield _about(flat[0], trained, trace.steps[-1])


def _about(where: Absence, trained: list[Leaf], last: Step) -> Finding:
    since = max(_since(leaf) for leaf in trained)
    names = [leaf.name for leaf in trained]
    return Finding(
        rule="GS403",
        name="dead-gradient",
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=since,
        op=where.call.op if where.call is not None else "",
        node=where.node,
        location=where.location,
        message=f"every gradient is exactly 0 from step {since} on, at a loss of"
        f" {number(last.loss or 0.0)}: {phrases.listed(names)}",
        label=LABELS.get(where.reason, "the gradient ends here"),
        why=f"{WHY[where.reason]} Until step {since - 1} there was a gradient: a step has brought"
        " them here, and no later one can lead back.",
        evidence={"reason": "died", "parameters": names, "of": len(trained), "since": since},
        numbers=(
            f"gradient norm of `{names[0]}` by step: {phrases.series(trained[0].known)}",
            f"{plural(len(trained), 'parameter')} held by the optimizer",
        ),
        # Of the last step: whether a repair holds shows when it has run as far.
        symptoms=tuple(Symptom(Trouble.ZERO, Subject.GRADIENT, last.index, name) for name in names),
        fixes=(
            Fix(
                "graph",
                "leave this function away where the model gives its output, or use one that is"
                " never flat",
                "unsafe",
                "nn.LeakyReLU() for nn.ReLU()",
            ),
            proposed(LowerRate()),
        ),
    )


def _since(leaf: Leaf) -> int:
    """The first step of those at the end without a gradient."""
    alive = [step for step, norm in enumerate(leaf.norms) if norm]
    return alive[-1] + 1
