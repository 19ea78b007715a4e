"""A result that is finite in mathematics and too large for its dtype."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import (
    Absence,
    Event,
    Finding,
    Measured,
    Operand,
    Phase,
    Raised,
    Root,
    Strength,
    Trace,
    Unfit,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.dtypes import HALF, finfo
from gradscope.ops.patterns import recognize
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.reading.missing import overflow_behind
from gradscope.rules.rule import Asked, Rule, places
from gradscope.rules.wording import phrases


class Overflow(Rule):
    """
    ## What it does
    Finds a result that is finite in mathematics and too large for its dtype: `exp` above 88.7 in
    float32, a sum above 65,504 in float16, a square of 1e20. So also where a later op makes a
    factor of 0 of the inf: nothing is NaN then, and nothing is learnt.

    ## Why is this bad?
    The result is inf, and the next `inf - inf`, `inf / inf` or `0 * inf`, going forward or back, is
    NaN. `log(exp(x) + exp(-x))` is about |x| and still overflows halfway.

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 95.0], requires_grad=True)
    - loss = torch.log(torch.exp(x) + torch.exp(-x)).mean()
    + loss = (x + torch.nn.functional.softplus(-2 * x)).mean()
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
        if first is not None:
            yield self._behind_zeros(first, zeros, trace)
        if trace.raised is not None and isinstance(trace.raised.why, Unfit) and not roots:
            yield self._unfit(trace.raised, trace.raised.why)

    def _unfit(self, raised: Raised, unfit: Unfit) -> Finding:
        """A number of the program's own that the dtype cannot hold, which torch refuses."""
        op, value = phrases.spelled(raised.call.op), phrases.number(unfit.value)
        largest = phrases.number(unfit.largest)
        return self.found(
            f"`{op}` is to write {value} into {unfit.dtype}, which ends at {largest}",
            f"A number that a program gives has to fit into the dtype of the tensor; {value} would"
            f" be inf in {unfit.dtype}, and torch refuses it. Under autocast or `half()` the same"
            " line gets a narrower tensor than it was written for.",
            raised.call,
            step=raised.step,
            label=f"{value} is beyond {unfit.dtype}",
            evidence={"value": unfit.value, "dtype": unfit.dtype, "largest": unfit.largest},
            measured=Measured(((unfit.role, unfit.value),), unfit.dtype),
            tensors=raised.operands,
            fixes=(ask.FitNumber(unfit),),
        )

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        scores = _why_scores_break(event)
        if scores is None and not evidence.breaks_in_use(root):
            return None
        edge = evidence.edge(event)
        known = edge is not None and edge.cause == self.name
        if scores is None and not evidence.leaves_range(event):
            return None
        # Where the loss had been growing for steps, the overflow is only how that ended.
        grew = measurements.growth(root, trace) is not None
        slower = (ask.ClipNorm(), ask.LowerRate()) if grew else ()
        spreads = "Every difference, ratio or product with 0 that this inf meets is NaN."
        return self.finding(
            root,
            trace,
            message=_headline(event),
            label="its scores are too large" if scores else _label(event, edge),
            why=scores or f"{_mechanism(event)} {spreads}",
            fixes=(*_repairs(edge, event, trace), *slower),
            facts={"max": finfo(evidence.dtype(event)).max},
            strength=Strength.LIKELY if scores or known else Strength.FALLBACK,
        )

    def _behind_zeros(self, first: Event, zeros: tuple[Absence, ...], trace: Trace) -> Finding:
        """The inf becomes a factor of 0: nothing is NaN, and nothing is learnt."""
        event, hider = replace(first, hidden_by=None), first.hidden_by
        made = phrases.spelled(hider.op) if hider is not None else "a later op"
        place = hider.location if hider is not None else None
        get = f"`{made}` makes 0 of it"
        if zeros:
            verb = "gets" if len(zeros) == 1 else "get"
            get = f"{plural(len(zeros), 'parameter')} {verb} a gradient of exactly 0 for it"
        return self.finding(
            Root(event, tuple(one.symptom for one in zeros), (event,)),
            trace,
            message=f"{_headline(event)}, and {get}",
            label=_label(event, evidence.edge(event)),
            why=f"{_mechanism(event)} Here `{made}` makes 0 of it: the loss stays finite, and what"
            " is multiplied by that 0 is lost, going forward and back.",
            related=places(("mask", place, "makes 0 of the inf")),
            fixes=(fixes.wider(event),),
            facts={"max": finfo(evidence.dtype(event)).max},
        )


def _why_scores_break(event: Event) -> str | None:
    """How the scores of an attention break, where the measured sizes show that they do."""
    breaks = _scores_overflow(event)
    if event.phase is Phase.BACKWARD:
        rows = event.operand("logsumexp")
        breaks = _scores_lose_digits(rows) if rows is not None else None
    return breaks and f"{breaks} Nothing is wrong with the mask: query and key are far too large."


def _scores_overflow(event: Event) -> str | None:
    """A fused op names no scores. Their bound is the largest query times the largest key, once for
    each channel; where no row is masked throughout, NaN of finite operands can be nothing else."""
    query, key = event.operand("query"), event.operand("key")
    if query is None or key is None or query.bad or key.bad or not query.shape:
        return None
    largest, channels = finfo(query.dtype).max, query.shape[-1]
    is_masked = any(one.masked_rows for one in event.operands)
    if is_masked or _reach(query) * _reach(key) * channels <= largest:
        return None
    return (
        f"A score is the sum of {channels} products of a query and a key. Queries reach"
        f" {phrases.number(_reach(query))} and keys {phrases.number(_reach(key))}, and the"
        f" largest {query.dtype} number is {largest:.5g}: scores become inf, and inf - inf inside"
        " of the softmax is NaN."
    )


def _scores_lose_digits(rows: Operand) -> str | None:
    """The logsumexp of the rows shows scores so large that the dtype keeps no fraction of them.

    A fused kernel saves one number a row, and its backward takes exp(score - logsumexp), which is
    at most 1. Where neighbouring numbers are farther apart than 1, rounding makes it anything.
    """
    size, apart = _reach(rows), _reach(rows) * finfo(rows.dtype).eps
    if apart <= 1:
        return None
    return (
        "Attention saves no weights: its backward computes them again, as exp(score - logsumexp),"
        f" which is at most 1. Its scores reach {phrases.number(size)}, where neighbouring"
        f" {rows.dtype} numbers are {phrases.number(apart)} apart, so the difference is wrong by"
        " that much and exp of it is inf."
    )


def _subject(event: Event) -> str:
    op = phrases.spelled(event.op)
    return f"the backward of `{op}`" if event.phase is Phase.BACKWARD else f"`{op}`"


def _headline(event: Event) -> str:
    dtype = evidence.dtype(event) or "its dtype"
    known = [one for one in event.operands if one.at is not None]
    first = ""
    if len(known) == 1 and event.phase is not Phase.BACKWARD:
        name = phrases.name(known[0], "its operand")
        first = f", first where {name} is {phrases.number(known[0].at)}"
    return f"{_subject(event)} overflows {dtype} at {phrases.bad_of(event)}{first}"


def _label(event: Event, edge: Edge | None) -> str:
    if edge is not None:
        return fixes.says(edge, event)
    dtype = evidence.dtype(event)
    return f"the result is above {finfo(dtype).max:,.6g}, the largest {dtype or 'number'}"


def _mechanism(event: Event) -> str:
    dtype = evidence.dtype(event) or "float32"
    text = (
        f"The true result is finite, but the largest {dtype} number is {finfo(dtype).max:.5g}, so"
        f" {_subject(event)} gives {phrases.outcome(event.output)}."
    )
    widest = max(event.operands, key=_reach, default=None)
    if widest is not None and widest.numel and _reach(widest) > 0:
        low, high = phrases.number(widest.min), phrases.number(widest.max)
        name = phrases.name(widest, "Its operand")
        text = f"{text} {name} holds {widest.numel:,} finite values from {low} to {high}."
    return text


def _reach(operand: Operand) -> float:
    """The size of the largest finite element."""
    bounds = (operand.min, operand.max)
    return max((abs(one) for one in bounds if one is not None and math.isfinite(one)), default=0.0)


def _fill(event: Event) -> float | None:
    """The end of the range of its own dtype that is cast to a narrower one, as a mask's fill is."""
    given = event.operands[0] if len(event.operands) == 1 else None
    if given is None or given.at is None or not has(event.op, Trait.COPIES):
        return None
    return given.at if abs(given.at) == finfo(given.dtype).max else None


def _repairs(edge: Edge | None, event: Event, trace: Trace) -> tuple[Asked, ...]:
    known = fixes.preferred(Overflow.name, event, edge, trace)
    if (filled := _fill(event)) is not None:
        low = filled < 0
        return ask.FitCast(evidence.dtype(event), low), *known
    if event.op == "exp" and event.phase is Phase.FORWARD and recognize(event) is None:
        return (*known, ask.LinearGrowth())
    going_back = event.phase is Phase.BACKWARD and evidence.dtype(event) not in HALF
    return (*known, ask.ClipNorm()) if going_back else known
