"""At which learning rate training stops diverging: found by running again with other rates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Fix, Trace
from gradscope.target import RunOptions, Target, run

COARSE, MOST_COARSE, FINE = 4.0, 4, 2  # quarter the rate until it holds, then halve the gap
TOO_SMALL = 10.0  # times smaller than what holds: training would take that much longer
SECONDS = 10.0  # for all runs together
FEWEST_STEPS, MOST_STEPS = 20, 60


@dataclass(frozen=True, slots=True)
class Slower:
    """The `setup` of a run whose optimizers all step with `factor` times their learning rate."""

    factor: float

    def __call__(self) -> None:
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        rates: dict[int, list[Any]] = {}

        def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
            groups = [group for group in optimizer.param_groups if "lr" in group]
            rates[id(optimizer)] = [group["lr"] for group in groups]
            for group in groups:
                group["lr"] = group["lr"] * self.factor

        def end(optimizer: Any, args: Any, kwargs: Any) -> None:
            """Schedulers go on from what they set."""
            groups = [group for group in optimizer.param_groups if "lr" in group]
            for group, rate in zip(groups, rates.pop(id(optimizer), ()), strict=False):
                group["lr"] = rate

        register_optimizer_step_pre_hook(begin)
        register_optimizer_step_post_hook(end)


@dataclass(frozen=True, slots=True)
class Border:
    """Of the factors that were tried: the largest that holds and the smallest that does not."""

    holds: float | None
    diverges: float
    runs: int


def with_stable_rate(
    findings: tuple[Finding, ...], target: Target, options: RunOptions
) -> tuple[Finding, ...]:
    """The findings, a divergence with the learning rate at which it stops."""
    found = next((f for f in findings if f.rule == "GS404" and "factor" in f.evidence), None)
    if found is None or found.evidence.get("stale_gradients") or not found.evidence["optimizer"]:
        return findings  # nothing to slow down: what is steep is the sum, or nothing has a rate
    losses: Any = found.evidence["losses"]
    steps = min(max(FEWEST_STEPS, 2 * (found.step + len(losses))), MOST_STEPS)
    slower = replace(options, steps=steps, keep_going=False, custom_backward=False)
    ends = time.monotonic() + SECONDS

    def holds(factor: float) -> bool:
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return settles(run(target, slower, silent=True, timeout=left, setup=Slower(factor)))

    try:
        border = search(holds)
    except GradscopeError:
        return findings
    return (
        tuple(_with(f, border) if f is found else f for f in findings) if border.runs else findings
    )


def search(holds: Callable[[float], bool]) -> Border:
    """Ends early, with what is known by then, at a TimeoutError."""
    low, high, runs = None, 1.0, 0
    try:
        while low is None and runs < MOST_COARSE:
            runs, factor = runs + 1, high / COARSE
            if holds(factor):
                low = factor
            else:
                high = factor
        for _ in range(FINE if low is not None else 0):
            runs, factor = runs + 1, math.sqrt((low or high) * high)
            if holds(factor):
                low = factor
            else:
                high = factor
    except TimeoutError:
        runs -= 1
    return Border(low, high, runs)


def settles(trace: Trace) -> bool:
    """Whether all losses are finite and the later half lies below the earlier one."""
    losses = [step.loss for step in trace.steps]
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    half = len(known) // 2
    if half == 0 or len(known) < len(losses) or trace.symptoms:
        return False
    return fmean(known[half:]) <= fmean(known[:half])


def _with(finding: Finding, border: Border) -> Finding:
    lr = float(str(finding.evidence["lr"]))
    high = lr * border.diverges
    again = f"found by running again {border.runs} time{'s' * (border.runs != 1)}"
    if border.holds is None:
        said = f"still diverges at lr {high:.3g} ({again})"
        return replace(finding, numbers=(*finding.numbers, said))
    low = lr * border.holds
    said = f"stops diverging between lr {low:.3g} and {high:.3g} ({again})"
    return replace(
        finding,
        numbers=(*finding.numbers, said),
        evidence={**finding.evidence, "stable_lr": low, "diverging_lr": high},
        fixes=tuple(_at_most(fix, lr, low) for fix in finding.fixes),
    )


def _at_most(fix: Fix, lr: float, stable: float) -> Fix:
    """The learning rate that was seen to hold, where the proposed one is far from it."""
    if fix.kind != "lower-lr" or not fix.code.startswith("lr="):
        return fix
    if stable / TOO_SMALL <= float(fix.code.removeprefix("lr=")) <= stable:
        return fix
    new = f"{stable:.2g}"
    return replace(
        fix,
        title=f"lower the learning rate from {lr:g} to {new}",
        code=f"lr={new}",
        edits=tuple(replace(edit, text=new) for edit in fix.edits),
    )
