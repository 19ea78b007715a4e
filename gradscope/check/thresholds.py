"""The configuration's own limits on gradients and losses, as findings where a step crosses one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradscope.config import Thresholds
from gradscope.facts import Finding, Phase, Severity, Trace


def crossed(trace: Trace, limits: Thresholds) -> Iterator[Finding]:
    """One finding a threshold: at the step that is furthest beyond it, with how many are.

    Steps whose norm is not finite are the business of the other rules.
    """
    norms = [
        (step, norm)
        for step, norm in enumerate(trace.magnitudes.totals() if trace.magnitudes else ())
        if math.isfinite(norm)
    ]
    losses = [
        (step.index, step.loss)
        for step in trace.steps
        if step.loss is not None and math.isfinite(step.loss)
    ]
    if limits.max_grad_norm is not None:
        bad = [(step, norm) for step, norm in norms if norm > limits.max_grad_norm]
        yield from _finding(
            "GS401", "max-grad-norm", limits.max_grad_norm, "total gradient norm", bad, norms, trace
        )
    if limits.min_grad_norm is not None:
        bad = [(step, norm) for step, norm in norms if norm < limits.min_grad_norm]
        yield from _finding(
            "GS402", "min-grad-norm", limits.min_grad_norm, "total gradient norm", bad, norms, trace
        )
    if limits.max_loss is not None:
        bad = [(step, loss) for step, loss in losses if loss > limits.max_loss]
        yield from _finding("GS404", "max-loss", limits.max_loss, "loss", bad, losses, trace)


NAMES = {
    "GS401": "exploding-gradient",
    "GS402": "vanishing-gradient",
    "GS404": "diverging-training",
}


def _finding(
    rule: str,
    key: str,
    limit: float,
    what: str,
    bad: Sequence[tuple[int, float]],
    seen: Sequence[tuple[int, float]],
    trace: Trace,
) -> Iterator[Finding]:
    if not bad:
        return
    furthest = min if key.startswith("min") else max
    step, value = furthest(bad, key=lambda pair: pair[1])
    side = "below" if key.startswith("min") else "above"
    place = next((one.backward_at for one in trace.steps if one.index == step), None)
    yield Finding(
        rule=rule,
        name=NAMES[rule],
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=step,
        op="",
        message=f"the {what} is {value:.4g} at step {step}, {side} {key} {limit:g}",
        why=f"The configuration sets {key} to {limit:g}. {len(bad):,} of {len(seen):,} steps are"
        f" {side} it; the {what} was between {min(v for _, v in seen):.4g} and"
        f" {max(v for _, v in seen):.4g}.",
        label="backward of that step",
        location=place,
        evidence={"threshold": key, "limit": limit, "value": value, "steps": len(bad)},
        numbers=(f"{what} {value:.4g} at step {step}; {key} {limit:g}",),
        confidence=1.0,
    )
