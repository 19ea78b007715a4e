"""GS204."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import (
    Absence,
    ClipNorm,
    Event,
    Finding,
    Fix,
    Kind,
    LowerRate,
    Phase,
    Related,
    Root,
    Strength,
    Subject,
    Symptom,
    Trace,
    Trouble,
    plural,
)
from gradscope.ops import Edge
from gradscope.ops.dtypes import finfo
from gradscope.rules import fixes
from gradscope.rules.reading import attention, evidence, measurements
from gradscope.rules.reading.absences import overflow_behind
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.proposals import proposed

_SPREADS = "Every difference, ratio or product with 0 that this inf meets is NaN."


class Overflow(Rule):
    """
    ## What it does
    Finds a result that is finite in mathematics and too large for its dtype: `exp` above 88.7 in
    float32, a sum above 65,504 in float16, a square of 1e20.

    ## Why is this bad?
    The result is inf. The next `inf - inf`, `inf / inf` or `0 * inf`, going forward or back, is
    NaN. `log(exp(x) + exp(-x))` is about |x| and still overflows halfway.

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 95.0], requires_grad=True)
    loss = torch.log(torch.exp(x) + torch.exp(-x)).mean()
    loss.backward()
    ```

    ## Use instead
    ```python
    import torch

    x = torch.tensor([1.0, 95.0], requires_grad=True)
    loss = (x + torch.nn.functional.softplus(-2 * x)).mean()
    loss.backward()
    ```

    ## Fix safety
    The stable form and a wider dtype are safe up to rounding. A clamp is unsafe: the result is
    bounded, and clamped elements get no gradient.
    """

    code = "GS204"
    name = "overflow"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from super().check(trace, roots)
        first, zeros = (None, ()) if roots else overflow_behind(trace)
        if first is not None and zeros:
            yield self._behind_zeros(first, zeros, trace)

    def _behind_zeros(self, first: Event, zeros: tuple[Absence, ...], trace: Trace) -> Finding:
        """The inf becomes a factor of 0: nothing is NaN, and nothing is learnt."""
        event, hider = replace(first, hidden_by=None), first.hidden_by
        made = phrases.spelled(hider.op) if hider is not None else "a later op"
        symptoms = (Symptom(Trouble.ZERO, Subject.GRADIENT, one.step, one.leaf) for one in zeros)
        found = self.finding(
            Root(event, tuple(symptoms), (event,)),
            trace,
            message=f"{_headline(event)}, and {plural(len(zeros), 'parameter')} get a gradient of"
            " exactly 0 for it",
            label=_label(event, evidence.edge(event)),
            why=f"{_mechanism(event)} Here `{made}` makes 0 of it: the loss stays finite, and what"
            " is multiplied by that 0 is lost, going forward and back.",
            fixes=(fixes.wider(event),),
            facts={"max": finfo(evidence.dtype(event)).max},
        )
        if hider is None or hider.location is None:
            return found
        return replace(found, related=(Related("mask", hider.location, "makes 0 of the inf"),))

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        scores = attention.why_scores_break(event)
        if scores is None and not evidence.breaks_in_use(root):
            return None
        edge = evidence.edge(event)
        known = edge is not None and edge.cause == self.name
        if not known and scores is None and not _left_the_range(event, edge):
            return None
        return self.finding(
            root,
            trace,
            message=_headline(event),
            label="its scores are too large" if scores else _label(event, edge),
            why=scores or f"{_mechanism(event)} {_SPREADS}",
            fixes=(*_repairs(edge, event, root, trace), *_slower(root, trace)),
            facts={"max": finfo(evidence.dtype(event)).max},
            strength=Strength.LIKELY if scores or known else Strength.FALLBACK,
        )


def _left_the_range(event: Event, edge: Edge | None) -> bool:
    """An op that the table does not explain, and that gave inf from finite values."""
    if edge is not None or event.kind is Kind.MINTED or evidence.gives_nan(event):
        return False
    return evidence.is_fed_finite(event)


def _subject(event: Event) -> str:
    op = phrases.spelled(event.op)
    return f"the backward of `{op}`" if event.phase is Phase.BACKWARD else f"`{op}`"


def _headline(event: Event) -> str:
    dtype, count = evidence.dtype(event) or "its dtype", phrases.of_total(event.bad, event.numel)
    return f"{_subject(event)} overflows {dtype} at {count}{_first(event)}"


def _first(event: Event) -> str:
    """ ", first where `x` is 95": the operand at the first bad element, where there is just one."""
    known = [one for one in event.operands if one.at is not None]
    if len(known) != 1 or event.phase is Phase.BACKWARD:
        return ""
    return f", first where {phrases.name(known[0], 'its operand')} is {phrases.number(known[0].at)}"


def _label(event: Event, edge: Edge | None) -> str:
    if edge is not None:
        return fixes.says(edge, event)
    largest = finfo(evidence.dtype(event)).max
    return f"the result is above {largest:,.6g}, the largest {evidence.dtype(event) or 'number'}"


def _mechanism(event: Event) -> str:
    dtype = evidence.dtype(event) or "float32"
    largest = f"{finfo(dtype).max:.5g}"
    text = f"The true result is finite, but the largest {dtype} number is {largest}"
    text = f"{text}, so {_subject(event)} gives {phrases.outcome(event.output)}."
    widest = max(event.operands, key=_reach, default=None)
    if widest is not None and widest.numel and _reach(widest) > 0:
        low, high = phrases.number(widest.min), phrases.number(widest.max)
        text = f"{text} {phrases.name(widest, 'Its operand')} holds {widest.numel:,} finite"
        text = f"{text} values from {low} to {high}."
    return text


def _reach(operand: object) -> float:
    bounds = (getattr(operand, "min", None), getattr(operand, "max", None))
    return max((abs(one) for one in bounds if one is not None and math.isfinite(one)), default=0.0)


def _slower(root: Root, trace: Trace) -> tuple[Fix, ...]:
    """Where the loss had been growing for steps, the overflow is only how that ended."""
    if measurements.growth(root, trace) is None:
        return ()
    return (
        proposed(ClipNorm()),
        proposed(LowerRate()),
    )


def _repairs(edge: Edge | None, event: Event, root: Root, trace: Trace) -> tuple[Fix, ...]:
    guards = fixes.guards(edge, event)
    stable = fixes.stable(edge, event, root, trace)
    if evidence.is_half(event):
        return (fixes.wider(event), *(one for one in stable if one.kind != "dtype"), *guards)
    if event.phase is Phase.BACKWARD:
        clip = proposed(ClipNorm())
        return (*guards, *stable, clip)
    return (*stable, *guards, fixes.wider(event))
