"""A division by exactly 0."""

from dataclasses import replace

from gradscope.facts import Event, Finding, Normed, Operand, Root, Trace
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class ZeroDivision(Rule):
    """
    ## What it does
    Finds a division by exactly 0: `a / b`, `reciprocal`, `rsqrt`, a negative power, a remainder,
    and `weight_norm` of a layer that starts at 0.

    ## Why is this bad?
    `1 / 0` is inf and `0 / 0` is NaN, and neither raises in PyTorch. The zero usually means that
    there was nothing to count: an empty mask, a class without pixels, the norm of the zero vector.

    ## Example
    ```python
    import torch

    weight = torch.ones(4, requires_grad=True)
    mask = torch.zeros(4)
    - loss = (weight * mask).sum() / mask.sum()
    + loss = (weight * mask).sum() / mask.sum().clamp_min(1)
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
        op, late = phrases.spelled(event.op), evidence.late_epsilon(event)
        divisor = event.operand(edge.argument)
        name = phrases.name(divisor, "")
        by = f"{name}, which is 0" if name else "exactly 0"
        after = f": {phrases.number(late.constant)} is added after the division" if late else ""
        message = f"`{op}` divides by {by}{_at_zeros(divisor) or phrases.at_bad(event)}{after}"
        if event.normed is not None:
            return self._normed(root, trace, event.normed, message)
        return self.finding(
            root,
            trace,
            message=message,
            label=fixes.says(edge, event),
            why=_mechanism(event, edge) + phrases.too_late(event, late),
            fixes=fixes.preferred(self.name, event, edge, trace),
        )

    def _normed(self, root: Root, trace: Trace, normed: Normed, message: str) -> Finding:
        """At the line that normalises a layer, or that has set what it has made of the weight to 0
        by its name."""
        event, place = root.event, normed.zeroed if normed.own else normed.location
        other = normed.inner if normed.own else normed.zeroed
        said = "the layer is normalised here" if normed.own else "its weight is set to 0 here"
        request = ask.ZeroGain(place) if normed.own else ask.WithoutNorm(normed)
        return self.finding(
            root,
            trace,
            message=message,
            blame=replace(event.blame, location=place, inner=None, frames=()),
            label="sets the direction of a weight to 0" if normed.own else "has a weight of zeros",
            why="`weight_norm` computes a weight as g * v / |v|. Of zeros that is 0 * 0 / 0, from"
            " the first forward pass on: what starts at 0 has no direction.",
            related=places(("use", other, said)),
            fixes=(request,),
        )


def _mechanism(event: Event, edge: Edge) -> str:
    above = event.values().get("self") if edge.argument != "self" else 1.0
    form = f"{phrases.number(above)} / 0" if above is not None else "a division by 0"
    result = f"{form} is {phrases.outcome(event.output)}, and nothing raises."
    zeros, made = event.operand(edge.argument), evidence.made_by(event, edge.argument)
    where = _at_zeros(zeros)
    if made is None:
        return f"The denominator is 0{where}: {result}"
    by, lost = phrases.call(made, event.blame), evidence.lost_epsilon(event, edge.argument)
    return f"The denominator, which {by} makes, is 0{where}: {result}{lost}"


def _at_zeros(divisor: Operand | None) -> str:
    """Of its own elements, which may be fewer than those of the result."""
    if divisor is None or divisor.numel == 1 or not divisor.zeros:
        return ""
    return f" at {phrases.of_total(divisor.zeros, divisor.numel)}"
