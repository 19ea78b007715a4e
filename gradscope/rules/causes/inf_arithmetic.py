"""GS103."""

from __future__ import annotations

from gradscope.facts import Event, Finding, Fix, Kind, Root, Strength, Trace
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
    An inf is harmless as long as it is only compared, exponentiated or masked away. The first
    product with 0 or difference with another inf is NaN, and NaN spreads to everything.

    ## Example
    ```python
    import torch

    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    banned = torch.tensor([[False, False, True]])
    logp = logits.masked_fill(banned, -torch.inf).log_softmax(-1)
    entropy = -(logp.exp() * logp).sum()
    entropy.backward()
    ```

    ## Use instead
    ```python
    import torch

    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    banned = torch.tensor([[False, False, True]])
    logp = logits.masked_fill(banned, -torch.inf).log_softmax(-1)
    kept = logp.masked_fill(banned, 0.0)
    entropy = -(kept.exp() * kept).masked_fill(banned, 0.0).sum()
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
        event = _meeting(root)
        edge = evidence.edge(event)
        if not (
            (edge is not None and edge.cause == self.name)
            or not evidence.is_fed_finite(event)
            or event.kind is Kind.MINTED
        ):
            return None
        return self.finding(
            root,
            trace,
            event=event,
            message=_headline(event),
            label=_label(event),
            why=_mechanism(event),
            fixes=(_replace(event),),
            strength=Strength.FALLBACK,
        )


def _label(event: Event) -> str:
    if event.kind is Kind.MINTED:
        return f"{_written(event)} that was written on purpose, and that the loss meets"
    return f"{_form(event)} is {phrases.outcome(event.output)}"


def _meeting(root: Root) -> Event:
    """Where an inf that was made on purpose meets the arithmetic that turns it into NaN."""
    if root.event.kind is not Kind.MINTED:
        return root.event
    events = (event for event in root.chain if event.kind in (Kind.BIRTH, Kind.REVIVAL))
    return next(events, root.event)


def _form(event: Event) -> str:
    """The indeterminate form, from the op and the operands' values: "0 * inf"."""
    here = event.values()
    if event.op in SIGNS and {"self", "other"} <= here.keys() and evidence.gives_nan(event):
        left, right = phrases.number(here["self"]), phrases.number(here["other"])
        return f"{left} {SIGNS[event.op]} {f'({right})' if right[0] == '-' else right}"
    if event.op == "mul":
        return "0 * inf"  # elsewhere: the first bad element is an inf that was meant
    if has(event.op, Trait.MULTIPLIES):
        return "0 * inf in a sum of products"
    if has(event.op, Trait.SUMS):
        return "inf - inf in a sum"
    infinite = evidence.infinite_operands(event)
    at = infinite[0].at if infinite else None
    return f"`{phrases.spelled(event.op)}` of {'inf' if at is None else phrases.number(at)}"


def _written(event: Event) -> str:
    what = phrases.outcome(event.output)
    return f"a {what}" if what.startswith("NaN") else f"an {what.removeprefix('-')}"


def _headline(event: Event) -> str:
    count = phrases.of_total(event.bad, event.numel)
    if event.kind is Kind.MINTED:
        share = f" at {count}" if event.numel else ""
        what, op = phrases.outcome(event.output), phrases.spelled(event.op)
        return f"the {what} that `{op}` writes{share} is never taken out again"
    return f"`{phrases.spelled(event.op)}` computes {_form(event)} at {count}"


def _mechanism(event: Event) -> str:
    gives, op = phrases.outcome(event.output), phrases.spelled(event.op)
    if event.kind is Kind.MINTED:
        return (
            f"`{op}` writes {_written(event)} on purpose. No op after it takes those elements"
            " out, so they arrive at the loss, as where a target is masked that the loss asks for."
        )
    infinite = evidence.infinite_operands(event)
    what = phrases.name(infinite[0], "an operand") if infinite else "an operand"
    count = phrases.of_total(infinite[0].bad, infinite[0].numel) if infinite else "some elements"
    return (
        f"{what} is not finite at {count}, and until here that did no harm: an inf that is only"
        f" compared, exponentiated or masked stays one. `{op}` computes {_form(event)}, which has"
        f" no answer, so the result is {gives}."
    )


def _replace(event: Event) -> Fix:
    if event.kind is Kind.MINTED:
        if evidence.gives_nan(event):
            return Fix("masked-branch", "fill with a finite number, or leave these elements out")
        title = "mask with a large finite number, or leave out what the loss asks for"
        code = "x.masked_fill(mask, torch.finfo(x.dtype).min)"
        return Fix("masked-branch", title, "unsafe", code)
    infinite = evidence.infinite_operands(event)
    x = phrases.source(infinite[0], infinite[0].role) if infinite else "x"
    title = f"replace the infinite elements before `{phrases.spelled(event.op)}`"
    return Fix("masked-branch", title, "safe", f"torch.where({x}.isinf(), 0.0, {x})")
