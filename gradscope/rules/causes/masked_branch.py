"""GS101."""

from __future__ import annotations

import math

from gradscope.facts import Event, Finding, Fix, Kind, Phase, Root, Trace
from gradscope.ops import Edge
from gradscope.ops.edges import Nature
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.reading.evidence import Situation
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class MaskedBranch(Rule):
    """
    ## What it does
    Finds an op whose result is thrown away and whose gradient is NaN all the same: by `where`,
    indexing, `masked_fill`, `clamp`, `maximum`, a masked write.

    ## Why is this bad?
    Selecting a branch going forward does not switch off the other one going back. The discarded
    elements receive gradient 0, the op multiplies it by its slope, and where that slope is
    infinite the product `0 * inf` is NaN. The gradients of both branches are then added. The loss
    is finite throughout, so nothing warns.

    ## Example
    ```python
    import torch

    x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    y = torch.where(x > 0.1, x.sqrt(), 3 * x)
    y.sum().backward()
    ```

    ## Use instead
    ```python
    import torch

    x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    safe = torch.where(x > 0.1, x, 1.0)
    y = torch.where(x > 0.1, safe.sqrt(), 3 * x)
    y.sum().backward()
    ```

    ## Fix safety
    Safe: the elements that are used keep their values bit for bit; those that were thrown away
    are computed from a harmless operand and thrown away as before.
    """

    code = "GS101"
    name = "masked-branch"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        if evidence.situation(root) is not Situation.HIDDEN:
            return None
        event = _culprit(root)
        edge = evidence.edge(event)
        return self.finding(
            root,
            trace,
            event=event,
            phase=Phase.BACKWARD,
            message=_headline(root, event),
            label=fixes.says(edge, event) if edge else "its backward gives NaN for gradient 0",
            why=_mechanism(root, event, edge, trace),
            fixes=_repairs(edge, event, root, trace),
            facts={"also": edge.cause} if edge and edge.cause != self.name else {},
        )


def _culprit(root: Root) -> Event:
    """The forward birth; where the bad value came from outside, the op whose gradient met it."""
    if root.event.kind in (Kind.SOURCE, Kind.MINTED, Kind.UNINITIALIZED):
        return evidence.leak(root) or root.event
    return root.event


def _headline(root: Root, event: Event) -> str:
    if len(root.symptoms) == 1:
        return phrases.symptom(root.symptoms[0])
    mask, op = evidence.discard(root), phrases.spelled(event.op)
    by = f"`{phrases.spelled(mask.op)}`" if mask else "a mask"
    branch = f"through the branch of `{op}` that {by} discards"
    return f"{phrases.symptoms(root.symptoms)}, {branch}"


def _mechanism(root: Root, event: Event, edge: Edge | None, trace: Trace) -> str:
    mask = evidence.discard(root)
    op, by = phrases.spelled(event.op), phrases.call(mask, event.blame) if mask else "A mask"
    loss = measurements.loss_of(root, trace)
    finite = loss is not None and math.isfinite(loss)
    kept = f", so the loss is finite ({phrases.number(loss)})" if finite else ""
    text = (
        f"{by} throws these elements of `{op}` away{kept}. Backward visits"
        f" the discarded branch too: {_product(root, event, edge)}, which is NaN, and NaN added to"
        " the gradient of the branch that was kept is NaN."
    )
    if loss is not None and not finite:
        text = f"{text} The loss is made of that gradient."
    late = _too_late(mask.op) if mask is not None else ""
    if edge is not None and edge.nature is Nature.REMOVABLE:
        late = "The true slope is finite there; it is PyTorch's backward formula that gives NaN."
    return f"{text} {late}" if late else text


def _too_late(op: str) -> str:
    """Of a mask that was meant as a repair, and stands behind the op that it should protect."""
    if has(op, Trait.CLEANS):
        return (
            f"`{phrases.spelled(op)}` replaces the value after the op has run; it does not touch"
            " the slope that backward multiplies by."
        )
    if has(op, Trait.CLAMPS):
        return (
            "The clamp stands after the op: it bounds the value and passes gradient 0, which the"
            " op still multiplies by its own slope."
        )
    return ""


def _product(root: Root, event: Event, edge: Edge | None) -> str:
    """What multiplies the gradient 0: the op's own slope, or the bad value itself, saved by an op
    that was computed from it."""
    op = phrases.spelled(event.op)
    for revival in root.chain:
        if revival.kind is Kind.REVIVAL and revival.blame.seq != event.blame.seq:
            user, value = phrases.call(revival.blame, event.blame), phrases.outcome(event.output)
            return f"{user} multiplies gradient 0 by that {value} of `{op}`"
    slope = phrases.number(float(edge.slope or "inf")) if edge else "inf"
    return f"`{op}` computes gradient 0 times slope {slope} there"


def _repairs(edge: Edge | None, event: Event, root: Root, trace: Trace) -> tuple[Fix, ...]:
    return (
        fixes.masked(edge, event, hidden=True),
        *fixes.guards(edge, event),
        *fixes.stable(edge, event, root, trace),
    )
