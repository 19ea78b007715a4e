"""A discarded branch whose gradient is NaN all the same."""

import math

from gradscope.facts import Event, Finding, Kind, Phase, Root, Trace
from gradscope.ops import Edge
from gradscope.ops.edges import Nature
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class MaskedBranch(Rule):
    """
    ## What it does
    Finds an op whose result is thrown away and whose gradient is NaN all the same: by `where`,
    indexing, `masked_fill`, `clamp`, `maximum`, a masked write.

    ## Why is this bad?
    Discarding a branch going forward does not switch it off going back. The discarded elements
    receive gradient 0, the op multiplies it by its slope, and where that is infinite `0 * inf` is
    NaN. The gradients of both branches are added. The loss is finite throughout, so nothing warns.

    ## Example
    ```python
    import torch

    x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    - y = torch.where(x > 0.1, x.sqrt(), 3 * x)
    + safe = torch.where(x > 0.1, x, 1.0)
    + y = torch.where(x > 0.1, safe.sqrt(), 3 * x)
    y.sum().backward()
    ```

    ## Fix safety
    Safe: the elements that are used keep their values bit for bit; those that were thrown away
    are computed from a harmless operand and thrown away as before.
    """

    code = "GS101"
    name = "masked-branch"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        if evidence.situation(root) is not evidence.Situation.HIDDEN:
            return None
        event = root.event  # where the bad value came from outside, the op whose gradient met it
        if event.kind in (Kind.SOURCE, Kind.CONSTANT, Kind.UNINITIALIZED):
            event = evidence.leak(root) or event
        edge = evidence.edge(event)
        return self.finding(
            root,
            trace,
            event=event,
            phase=Phase.BACKWARD,
            message=_headline(root, event),
            label=fixes.says(edge, event) if edge else "its backward gives NaN for gradient 0",
            why=_mechanism(root, event, edge, trace),
            fixes=fixes.preferred(self.name, event, edge, trace),
            facts={"also": edge.cause} if edge and edge.cause != self.name else {},
        )


def _headline(root: Root, event: Event) -> str:
    if len(root.symptoms) == 1:
        return phrases.symptom(root.symptoms[0])
    mask, op = evidence.discard(root), phrases.spelled(event.op)
    by = f"`{phrases.spelled(mask.op)}`" if mask else "a mask"
    return f"{phrases.symptoms(root.symptoms)}, through the branch of `{op}` that {by} discards"


def _mechanism(root: Root, event: Event, edge: Edge | None, trace: Trace) -> str:
    mask, loss = evidence.discard(root), measurements.loss_of(root, trace)
    op, by = phrases.spelled(event.op), phrases.call(mask, event.blame) if mask else "A mask"
    finite = loss is not None and math.isfinite(loss)
    kept = f", so the loss is finite ({phrases.number(loss)})" if finite else ""
    text = (
        f"{by} throws these elements of `{op}` away{kept}. Backward visits them all the same:"
        f" {_product(root, event, edge)}, which is NaN."
    )
    if loss is not None and not finite:
        text = f"{text} The loss is made of that gradient."
    if edge is not None and edge.nature is Nature.REMOVABLE:
        slope = "The true slope is finite there"
        return f"{text} {slope}; it is PyTorch's backward formula that gives NaN."
    # A mask that was meant as a repair, and stands behind the op that it should protect.
    if mask is not None and has(mask.op, Trait.CLEANS):
        return f"{text} `{phrases.spelled(mask.op)}` replaces the value, and not the slope."
    if mask is not None and has(mask.op, Trait.CLAMPS):
        return f"{text} The clamp bounds the value, and not the slope."
    return text


def _product(root: Root, event: Event, edge: Edge | None) -> str:
    """What multiplies the gradient 0: the op's own slope, or the bad value itself, saved by an op
    that was computed from it."""
    op = phrases.spelled(event.op)
    for revival in root.chain:
        if revival.kind is Kind.REVIVAL and revival.blame.seq != event.blame.seq:
            user, value = phrases.call(revival.blame, event.blame), phrases.outcome(event.output)
            return f"{user} multiplies gradient 0 by that {value} of `{op}`"
    slope = phrases.number(evidence.slope(event, edge))
    return f"`{op}` multiplies gradient 0 by its slope {slope} there"
