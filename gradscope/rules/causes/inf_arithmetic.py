"""Arithmetic that has no answer, on an inf that the program made on purpose."""

import math

from gradscope.facts import Event, Finding, Fix, Kind, Root, Strength, Trace
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases

SIGNS = {"mul": "*", "div": "/", "sub": "-", "add": "+"}


class InfArithmetic(Rule):
    """
    ## What it does
    Finds arithmetic that has no answer: `inf - inf`, `0 * inf`, `inf / inf`, on an inf that the
    program made on purpose.

    ## Why is this bad?
    An inf does no harm while it is only compared, exponentiated or masked away. The first product
    with 0 or difference with another inf is NaN, and NaN spreads to everything.

    ## Example
    ```python
    import torch

    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    banned = torch.tensor([[False, False, True]])
    logp = logits.masked_fill(banned, -torch.inf).log_softmax(-1)
    - entropy = -(logp.exp() * logp).sum()
    + kept = logp.masked_fill(banned, 0.0)
    + entropy = -(kept.exp() * kept).masked_fill(banned, 0.0).sum()
    entropy.backward()
    ```

    ## Fix safety
    Safe: the infinite elements are replaced before the arithmetic that has no answer for them,
    and contribute 0; all other elements keep their values.
    """

    code = "GS103"
    name = "inf-arithmetic"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        if not evidence.breaks_in_use(root):
            return None
        event = root.event
        if event.kind is Kind.CONSTANT:  # where it meets the arithmetic that turns it into NaN
            met = (one for one in root.chain if one.kind in (Kind.BIRTH, Kind.REVIVAL))
            event = next(met, event)
        edge = evidence.edge(event)
        known = edge is not None and edge.cause == self.name
        if not known and evidence.is_fed_finite(event) and event.kind is not Kind.CONSTANT:
            return None
        words = _of_written if event.kind is Kind.CONSTANT else _of_arithmetic
        message, label, why, fix = words(event)
        infinite = (value for _, value in event.scalars if isinstance(value, float))
        is_masked = event.op == "mul" and any(map(math.isinf, infinite))
        return self.finding(
            root,
            trace,
            event=event,
            message=message,
            label=label,
            why=why,
            fixes=(ask.FillByMask(), fix) if is_masked else (fix,),
            strength=Strength.FALLBACK,
        )


def _of_written(event: Event) -> tuple[str, str, str, Fix]:
    """The headline, the label, the mechanism and the fix for an inf that arrives at the loss."""
    what, op = phrases.outcome(event.output), phrases.spelled(event.op)
    written = f"a {what}" if evidence.gives_nan(event) else f"an {what.removeprefix('-')}"
    share = f" at {phrases.bad_of(event)}" if event.numel else ""
    title = "mask with a large finite number, or leave out what the loss asks for"
    code = "x.masked_fill(mask, torch.finfo(x.dtype).min)"
    if evidence.gives_nan(event):
        title, code = "fill with a finite number, or leave these elements out", ""
    return (
        f"the {what} that `{op}` writes{share} is never taken out again",
        f"{written} that was written on purpose, and that the loss meets",
        f"`{op}` writes {written} on purpose. No op after it takes those elements out, so they"
        " arrive at the loss, as where a target is masked that the loss asks for.",
        Fix("masked-branch", title, "unsafe", code, request=ask.HarmlessOperand(hidden=False)),
    )


def _of_arithmetic(event: Event) -> tuple[str, str, str, Fix]:
    """The same for the op that has no answer."""
    gives, op, form = phrases.outcome(event.output), phrases.spelled(event.op), _form(event)
    infinite = evidence.infinite_operands(event)
    what, count, x = "an operand", "some elements", "x"
    if infinite:
        one = infinite[0]
        what, x = phrases.name(one, what), phrases.source(one, one.role)
        count = phrases.of_total(one.bad, one.numel)
    return (
        f"`{op}` computes {form}{phrases.at_bad(event)}",
        f"{form} is {gives}",
        f"{what} is not finite at {count}, and until here that did no harm: an inf that is only"
        f" compared, exponentiated or masked stays one. `{op}` computes {form}, which has no"
        f" answer, so the result is {gives}.",
        Fix(
            "masked-branch",
            f"replace the infinite elements before `{op}`",
            "safe",
            f"torch.where({x}.isinf(), 0.0, {x})",
            request=ask.HarmlessOperand(hidden=False),
        ),
    )


def _form(event: Event) -> str:
    """The indeterminate form, from the op and the operands' values: "0 * inf"."""
    here = event.values()
    if event.op in SIGNS and {"self", "other"} <= here.keys() and evidence.gives_nan(event):
        left, right = phrases.number(here["self"]), phrases.number(here["other"])
        return f"{left} {SIGNS[event.op]} {f'({right})' if right[0] == '-' else right}"
    if event.op == "mul":
        return "0 * inf"  # elsewhere: the first bad element is an intentional inf
    if has(event.op, Trait.MULTIPLIES):
        return "0 * inf in a sum of products"
    if has(event.op, Trait.SUMS):
        return "inf - inf in a sum"
    infinite = evidence.infinite_operands(event)
    at = infinite[0].at if infinite else None
    return f"`{phrases.spelled(event.op)}` of {'inf' if at is None else phrases.number(at)}"
