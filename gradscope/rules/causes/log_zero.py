"""GS202."""

from __future__ import annotations

from gradscope.facts import Call, Event, Finding, Fix, Root, Subject, Trace
from gradscope.ops import Edge
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class LogZero(Rule):
    """
    ## What it does
    Finds a logarithm of exactly 0: `log`, `log2`, `log10`, `log1p` at -1, `logit` at 0 or 1,
    `xlogy`, and the hand-written entropies and likelihoods made of them.

    ## Why is this bad?
    `log(0)` is -inf, so is the loss, and the slope there is inf. A probability reaches 0 sooner
    than one thinks: `1 - sigmoid(x)` is exactly 0 in float32 from x = 17 on, because the sigmoid
    has been rounded to 1.

    ## Example
    ```python
    import torch

    logit = torch.tensor([2.0, 40.0], requires_grad=True)
    loss = -torch.log(1 - torch.sigmoid(logit)).mean()
    loss.backward()
    ```

    ## Use instead
    ```python
    import torch

    logit = torch.tensor([2.0, 40.0], requires_grad=True)
    loss = -torch.nn.functional.logsigmoid(-logit).mean()
    loss.backward()
    ```

    ## Fix safety
    The stable form is safe: equal up to rounding wherever the old form was right. A clamp or an
    epsilon is unsafe: it bounds the loss, and clamped elements get no gradient.
    """

    code = "GS202"
    name = "log-zero"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event, edge = root.event, self.edge_at(root)
        if edge is None:
            return None
        return self.finding(
            root,
            trace,
            message=_headline(event, edge),
            label=fixes.says(edge, event),
            why=_mechanism(event, edge, root),
            fixes=_repairs(edge, event, root, trace),
        )


def _headline(event: Event, edge: Edge) -> str:
    at = phrases.number(event.values().get(edge.argument, 0.0))
    count = phrases.of_total(event.bad, event.numel)
    return f"`{phrases.spelled(event.op)}` was taken of exactly {at} at {count}"


def _mechanism(event: Event, edge: Edge, root: Root) -> str:
    op, at = phrases.spelled(event.op), event.values().get(edge.argument, 0.0)
    text = f"`{op}` of {phrases.number(at)} is {phrases.outcome(event.output)}, and its slope there"
    text = f"{text} is not finite either"
    hurt = any(symptom.subject is Subject.GRADIENT for symptom in root.symptoms)
    text += ", so the gradient breaks with the value." if hurt else "."
    made = evidence.made_by(event, edge.argument)
    if made is not None:
        by = phrases.call(made, event.blame)
        text = f"{text} The operand comes from {by}{_reached(made)}."
        text += evidence.lost_epsilon(event, edge.argument)
    return text + phrases.too_late(event, evidence.late_epsilon(event))


def _reached(made: Call) -> str:
    """How the op that made the operand came to 0."""
    if has(made.op, Trait.POSITIVE | Trait.PRODUCT):
        return ", whose result was rounded to that value"
    if has(made.op, Trait.SUBTRACTS):
        return ", where two equal numbers cancelled"
    return ", which had nothing but zeros to add up" if has(made.op, Trait.SUMS) else ""


def _repairs(edge: Edge, event: Event, root: Root, trace: Trace) -> tuple[Fix, ...]:
    return (
        *fixes.stable(edge, event, root, trace),
        *fixes.guards(edge, event),
        fixes.masked(edge, event),
    )
