"""GS201."""

from __future__ import annotations

from gradscope.facts import Event, Finding, Fix, Root, Trace
from gradscope.ops import Edge
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases, titles


class ZeroDivision(Rule):
    """
    ## What it does
    Finds a division by exactly 0: `a / b`, `reciprocal`, `rsqrt`, a negative power, a remainder.

    ## Why is this bad?
    `1 / 0` is inf and `0 / 0` is NaN, and neither raises in PyTorch. The loss is then not finite,
    and the gradient of both operands with it. The zero usually means that there was nothing to
    count: an empty mask, a class without pixels, a norm of the zero vector.

    ## Example
    ```python
    import torch

    weight = torch.ones(4, requires_grad=True)
    mask = torch.zeros(4)
    loss = (weight * mask).sum() / mask.sum()
    loss.backward()
    ```

    ## Use instead
    ```python
    import torch

    weight = torch.ones(4, requires_grad=True)
    mask = torch.zeros(4)
    loss = (weight * mask).sum() / mask.sum().clamp_min(1)
    loss.backward()
    ```

    ## Fix safety
    Unsafe: where the denominator was 0 the result is a number now, and an epsilon that is added
    rather than clamped shifts all other results a little.
    """

    code = "GS201"
    name = "zero-division"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event, edge = root.event, self.edge_at(root)
        if edge is None:
            return None
        return self.finding(
            root,
            trace,
            message=_headline(event, edge),
            label=fixes.says(edge, event),
            why=_mechanism(event, edge),
            fixes=_repairs(edge, event, root, trace),
        )


def _headline(event: Event, edge: Edge) -> str:
    divisor = phrases.name(event.operand(edge.argument), "0")
    by = f"{divisor}, which is 0" if divisor != "0" else "exactly 0"
    count = phrases.of_total(event.bad, event.numel)
    late = evidence.late_epsilon(event)
    after = "" if late is None else f": {phrases.number(late.constant)} is added after the division"
    return f"`{phrases.spelled(event.op)}` divides by {by}, at {count}{after}"


def _mechanism(event: Event, edge: Edge) -> str:
    gives = phrases.outcome(event.output)
    above = event.values().get("self") if edge.argument != "self" else 1.0
    made = evidence.made_by(event, edge.argument)
    form = f"{phrases.number(above)} / 0" if above is not None else "A division by 0"
    text = f"{form} is {gives} in floating point, and no error is raised."
    text = f"{text} What is computed from it is not finite either."
    if made is not None:
        by = phrases.call(made, event.blame)
        lost = evidence.lost_epsilon(event, edge.argument)
        text = f"The denominator comes from {by} and is exactly 0.{lost} {text}"
    zeros = event.operand(edge.argument)
    if zeros is not None and zeros.numel > 1:
        text = f"{text} The denominator is 0 at {phrases.of_total(zeros.zeros, zeros.numel)}."
    return text + phrases.too_late(event, evidence.late_epsilon(event))


def _repairs(edge: Edge, event: Event, root: Root, trace: Trace) -> tuple[Fix, ...]:
    x = fixes.text_at(edge, event)
    guards = fixes.guards(edge, event) or (
        Fix(
            "epsilon",
            titles.guarded("epsilon", f"`{x}`", phrases.spelled(event.op)),
            "unsafe",
            f"{x} + 1e-8",
        ),
    )
    return (*guards, *fixes.stable(edge, event, root, trace), fixes.masked(edge, event))
