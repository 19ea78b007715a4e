"""A finite value whose slope is infinite, differentiated at that very point."""

from gradscope.facts import Ancestor, Call, Event, Finding, Fix, Root, Strength, Trace
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.edges import Nature
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class SingularDerivative(Rule):
    """
    ## What it does
    Finds an op whose value is finite and whose slope is not, differentiated at that very point:
    `sqrt` or a fractional power at 0, `acos` at 1, a norm at the zero vector.

    ## Why is this bad?
    The infinite slope goes into the chain rule. Times anything but 0 it stays infinite; times 0, as
    for the distance of a point to itself, it is NaN, and the sum over a batch carries it to every
    parameter. The loss itself is finite.

    ## Example
    ```python
    import torch

    a = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    - a.square().sum(-1).sqrt().sum().backward()
    + a.square().sum(-1).clamp_min(1e-12).sqrt().sum().backward()
    ```

    ## Fix safety
    Unsafe: outputs that were 0 become 1e-6, and their gradient becomes 0. An epsilon added after
    the op, `sqrt(x) + 1e-8`, changes the value and leaves the slope as it is.
    """

    code = "GS102"
    name = "singular-derivative"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if evidence.situation(root) is not evidence.Situation.SLOPE:
            return None
        edge = evidence.edge(event)
        if event.blame.formula_of is not None:
            return self._differentiated_twice(root, trace, event.blame.formula_of, edge)
        if edge is not None and edge.cause != self.name:
            return None
        if edge is None and evidence.infinite_operands(event):
            return None  # nothing infinite in its formula but its slope may be put down to that
        # A clamp right above it keeps the operand in a range whose end is the edge.
        above = evidence.above(event, edge.argument) if edge else None
        bound = above if above and has(above.node, Trait.BOUNDS) else None
        guard = bound.call.location if bound is not None and bound.call is not None else None
        known = fixes.preferred(self.name, event, edge, trace)
        return self.finding(
            root,
            trace,
            message=_headline(event, edge),
            label=fixes.says(edge, event) if edge else f"slope is {phrases.outcome(event.output)}",
            why=_mechanism(event, edge, bound),
            related=places(("call", guard, "guards the value, not the slope")),
            fixes=known or (_away(event.blame),),
            strength=Strength.LIKELY if edge else Strength.FALLBACK,
        )

    def _differentiated_twice(
        self, root: Root, trace: Trace, outer: Call, edge: Edge | None
    ) -> Finding:
        event = root.event
        op, part = phrases.spelled(outer.op), phrases.spelled(event.op)
        where = f"differentiated where it is not finite ({phrases.bad_of(event)})"
        return self.finding(
            root,
            trace,
            message=f"the slope of `{op}` was {where}",
            label=f"its backward runs `{part}`: {fixes.says(edge, event)}" if edge else "",
            why=f"With `create_graph` the backward of `{op}` is part of the graph. The `{part}` of"
            f" its formula meets its own singular point here and gives"
            f" {phrases.outcome(event.output)} when it is differentiated in turn.",
            fixes=(_away(outer),),
            strength=Strength.PROVEN,
        )


def _headline(event: Event, edge: Edge | None) -> str:
    op, count = phrases.spelled(event.op), phrases.at_bad(event)
    if edge is None:
        return f"the backward of `{op}` gives {phrases.outcome(event.output)}{count}"
    if edge.argument not in event.values():
        return f"`{op}` was differentiated where its slope is {_slope(event, edge)}{count}"
    at = phrases.number(event.values()[edge.argument])
    return f"`{op}` was differentiated at exactly {at}{count}"


def _mechanism(event: Event, edge: Edge | None, bound: Ancestor | None) -> str:
    op, gives = phrases.spelled(event.op), phrases.outcome(event.output)
    came = event.grad_output
    times = f"the incoming gradient {phrases.number(came)}" if came is not None else "the gradient"
    if edge is None:
        return (
            f"The value of `{op}` is finite here and so is what came in; {times}, put through its"
            f" backward, gives {gives}. No more is known of the slope of this op."
        )
    text = (
        f"The value of `{op}` is finite here, its slope is {_slope(event, edge)}: {times} times"
        f" that slope gives {gives}."
    )
    if edge.nature is Nature.REMOVABLE:
        text = (
            f"{text} The mathematics has a finite slope there; it is PyTorch's backward formula"
            " that computes 0 * inf."
        )
    if bound is not None:
        guard = phrases.call(bound.call, event.blame) if bound.call else "The bound"
        text = (
            f"{text} {guard} protects the value and not the slope: it lets the edge itself through."
        )
    if lost := evidence.lost_epsilon(event, edge.argument):
        text = f"{text} An addition guards it in vain.{lost}"
    return text + phrases.too_late(event, evidence.late_epsilon(event))


def _slope(event: Event, edge: Edge) -> str:
    return phrases.number(evidence.slope(event, edge))


def _away(call: Call) -> Fix:
    op = phrases.spelled(call.op)
    title = f"keep the operand of `{op}` away from where its slope is not finite"
    return Fix("epsilon", title, request=ask.KeepOff())
