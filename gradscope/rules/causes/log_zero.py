"""A logarithm of exactly 0."""

from gradscope.facts import Call, Finding, Phase, Root, Trace
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
    `log(0)` is -inf, and its slope inf. A probability is 0 sooner than expected: `1 - sigmoid(x)`
    is exactly 0 in float32 from x = 17 on, because the sigmoid has been rounded to 1.

    ## Example
    ```python
    import torch

    logit = torch.tensor([2.0, 40.0], requires_grad=True)
    - loss = -torch.log(1 - torch.sigmoid(logit)).mean()
    + loss = -torch.nn.functional.logsigmoid(-logit).mean()
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
        op, at = phrases.spelled(event.op), phrases.number(event.values().get(edge.argument, 0.0))
        made = evidence.made_by(event, edge.argument)
        origin = ""
        if made is not None:
            by, lost = phrases.call(made, event.blame), evidence.lost_epsilon(event, edge.argument)
            what = phrases.name(event.operand(edge.argument), "The operand")
            origin = f" {what} comes from {by}{_reached(made)}.{lost}"
        what_of = f"`{op}` of {at} is {phrases.outcome(event.output)}, and its slope there is not"
        what_of += " finite either."
        if event.phase is Phase.BACKWARD:  # whose result is a gradient
            what_of = f"The slope of `{op}` at {at} is not finite."
        message = f"`{op}` was taken of exactly {at}{phrases.at_bad(event)}"
        usual = fixes.preferred(self.name, event, edge, trace)
        return self.above_zero_alone(root, trace, edge, message, usual) or self.finding(
            root,
            trace,
            message=message,
            label=fixes.says(edge, event),
            why=f"{what_of}{origin}{phrases.too_late(event, evidence.late_epsilon(event))}",
            fixes=usual,
        )


def _reached(made: Call) -> str:
    """How the op that made the operand came to 0."""
    if has(made.op, Trait.POSITIVE | Trait.PRODUCT):
        return ", whose result was rounded to that value"
    if has(made.op, Trait.SUBTRACTS):
        return ", where two equal numbers cancelled"
    return ", which had nothing but zeros to add up" if has(made.op, Trait.SUMS) else ""
