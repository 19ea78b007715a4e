"""The configuration's own limits on gradients and losses, as findings where a step crosses one."""

import math
from collections.abc import Iterator, Sequence

from gradscope.config import Thresholds
from gradscope.dataclass import dataclass
from gradscope.facts import Finding, Phase, Severity, Trace, number, plural
from gradscope.rules import RULES


@dataclass(frozen=True, slots=True)
class _Limit:
    """One key of `thresholds:`, the rule that a step beyond it goes by, and what every step showed:
    (step, value)."""

    key: str
    rule: str
    what: str
    limit: float
    seen: Sequence[tuple[int, float]]

    @property
    def is_floor(self) -> bool:
        return self.key.startswith("min")

    def beyond(self) -> list[tuple[int, float]]:
        """The steps that cross it, the furthest first."""
        sign = -1 if self.is_floor else 1
        crossing = [(step, value) for step, value in self.seen if sign * (value - self.limit) > 0]
        return sorted(crossing, key=lambda pair: -sign * pair[1])


def crossed(trace: Trace, thresholds: Thresholds) -> Iterator[Finding]:
    """One finding a threshold: at the step that is furthest beyond it, with how many are."""
    for limit in _limits(trace, thresholds):
        if beyond := limit.beyond():
            yield _finding(limit, beyond, trace)


def _limits(trace: Trace, given: Thresholds) -> Iterator[_Limit]:
    """The thresholds that are set, with the finite values; other rules report the rest."""
    totals = enumerate(trace.magnitudes.totals())
    norms = [(step, norm) for step, norm in totals if math.isfinite(norm)]
    losses = [
        (step.index, step.loss)
        for step in trace.steps
        if step.loss is not None and math.isfinite(step.loss)
    ]
    norm = "total gradient norm"
    if given.max_grad_norm is not None:
        yield _Limit("max-grad-norm", "GS401", norm, given.max_grad_norm, norms)
    if given.min_grad_norm is not None:
        yield _Limit("min-grad-norm", "GS402", norm, given.min_grad_norm, norms)
    if given.max_loss is not None:
        yield _Limit("max-loss", "GS404", "loss", given.max_loss, losses)


def _finding(one: _Limit, beyond: Sequence[tuple[int, float]], trace: Trace) -> Finding:
    step, value = beyond[0]
    side = "below" if one.is_floor else "above"
    low, high = number(min(v for _, v in one.seen)), number(max(v for _, v in one.seen))
    extent = f"was {low} in each" if low == high else f"was between {low} and {high}"
    return Finding(
        rule=one.rule,
        name=RULES[one.rule].name,
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=step,
        op="",
        message=f"the {one.what} is {number(value)} at step {step}, {side} {one.key} {one.limit:g}",
        why=f"The configuration sets {one.key} to {one.limit:g}. {len(beyond):,} of"
        f" {plural(len(one.seen), 'step')} {'lies' if len(beyond) == 1 else 'lie'} {side} it; the"
        f" {one.what} {extent}.",
        label="backward of that step",
        location=next((seen.backward_at for seen in trace.steps if seen.index == step), None),
        evidence={
            "threshold": one.key,
            "limit": one.limit,
            "value": value,
            "steps": len(beyond),
        },
        numbers=(f"{one.what} {number(value)} at step {step}; {one.key} {one.limit:g}",),
    )
