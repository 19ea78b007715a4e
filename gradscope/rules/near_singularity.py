"""GS602."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import Approach, Finding, Phase, Root, Severity, Trace
from gradscope.rules import phrases
from gradscope.rules.rule import Rule


class NearSingularity(Rule):
    """
    ## What it does
    Finds an op on the way to a healthy loss whose operand comes near a point where its value or
    slope is infinite, unguarded. A guard is a clamp, an epsilon that is added, or a `where`.

    ## Why is this bad?
    The slope is already huge there, and the operand is free to move on: the next batch, the next
    step or a narrower dtype puts it on the point itself, and the gradient is inf or NaN (GS102,
    GS201, GS202).

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 1e-20], requires_grad=True)
    x.sqrt().sum().backward()
    ```

    ## Use instead
    ```python
    import torch

    x = torch.tensor([1.0, 1e-20], requires_grad=True)
    x.clamp_min(1e-12).sqrt().sum().backward()
    ```

    ## Fix safety
    There is no patch: how near the operand may come is a choice. `clamp_min(eps)` and adding eps
    both change the values within eps of the point.
    """

    code = "GS602"
    name = "near-singularity"
    severity = Severity.WARNING
    MOST = 3  # told a run: the nearest

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        broken = {root.event.blame.location for root in roots}
        hidden = {event.blame.location for event in trace.hidden}
        open_ones = [one for one in trace.approaches if one.call.location not in broken | hidden]
        for one in open_ones[: self.MOST]:
            yield _finding(one)


def _finding(one: Approach) -> Finding:
    op = phrases.spelled(one.call.op)
    near = phrases.of_total(one.near, one.numel)
    point, distance = phrases.number(one.point), phrases.number(one.distance)
    ends = "the divisor" if one.role == "other" and one.call.op == "div" else "the operand"
    return Finding(
        rule=NearSingularity.code,
        name=NearSingularity.name,
        severity=NearSingularity.severity,
        phase=Phase.FORWARD,
        step=one.step,
        op=one.call.op,
        message=f"{ends} of `{op}` comes within {distance} of {point}, unguarded ({near})",
        why=f"At {point} the value or the slope of `{op}` is infinite. A guard in {one.dtype} would"
        f" hold {ends} {phrases.number(one.reach)} away from it; nothing here does.",
        label=f"{distance} from {point}",
        location=one.call.location,
        evidence={
            "operand": one.role,
            "value": one.value,
            "point": one.point,
            "margin": one.distance,
            "reach": one.reach,
            "near": one.near,
            "numel": one.numel,
            "dtype": one.dtype,
        },
        confidence=0.5,
    )
