"""What only a second run tells: what a wrong gradient leads to, since the trace stops at its first
step, and at which learning rate training stops diverging."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.diagnose import diagnose
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Fix, Location, Severity, Trace
from gradscope.facts import requests as ask
from gradscope.repair.again import Again
from gradscope.repair.budget import Purpose
from gradscope.repair.worth import leaps
from gradscope.repair.write.splice import spliced
from gradscope.report.status import Doing
from gradscope.rules import cutoffs
from gradscope.rules.order import consequence, is_wrong_gradient
from gradscope.rules.reading.divergence import tried
from gradscope.rules.wording.proposals import proposed
from gradscope.source import read
from gradscope.source.hand_updates import rate_by_hand
from gradscope.source.text import compiled_as

# A quarter of the rate, a 16th, a 256th, a 65536th, until it holds; then the gap is halved.
COARSE, MOST_COARSE, FINE = 4.0, 4, 2
TOO_SMALL = 10.0  # times smaller than what holds: training would take that much longer
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


def with_stable_rate(findings: tuple[Finding, ...], again: Again) -> tuple[Finding, ...]:
    """The findings, a divergence with the learning rate at which it stops.

    Raises TimeoutError where the time ended before anything was known.
    """
    found, request = next(_asking(findings), (None, None))
    if found is None or request is None or request.trial_steps is None:
        return findings
    if request.trial_steps > 2 * MOST_STEPS:
        return findings  # a run so short would end before the losses grew, with any rate
    steps = min(max(FEWEST_STEPS, request.trial_steps), MOST_STEPS)
    update = request.update
    by_hand = update.location if update is not None and not update.optimizer else None
    again.stages.begin(Doing.SLOWING)

    def run(factor: float) -> Trace:
        if by_hand is None:
            return again.run(Purpose.RATE, steps, Slower(factor))
        texts = _with_rate(by_hand, (request.old or 0.0) * factor)
        return again.budget.run(
            Purpose.RATE, lambda limit: again.changed(texts, range(steps), limit)
        )

    try:
        border = search(lambda factor: settles(run(factor)))
    except GradscopeError as error:
        if again.budget.left_for(Purpose.RATE) <= 0:  # it had no time to begin
            raise TimeoutError from error
        return findings
    return tuple(_with(f, request, border) if f is found else f for f in findings)


def _with_rate(place: Location, rate: float) -> dict[str, str]:
    """The file of an update by hand, with another rate there."""
    source = read(place.file)
    number = rate_by_hand(source, place)
    edits = [source.replaced(number, f"{rate:g}")] if number is not None else ()
    return {compiled_as(source.file): spliced(source, edits)}


def _asking(findings: tuple[Finding, ...]) -> Iterator[tuple[Finding, ask.LowerRate]]:
    """The findings that ask for a lower rate, and tell from which."""
    for finding in findings:
        for request in (fix.request for fix in finding.fixes):
            if isinstance(request, ask.LowerRate) and request.old is not None:
                yield finding, request


def search(holds: Callable[[float], bool]) -> Border:
    """Ends early at a TimeoutError, with what is known by then; raises it where nothing is."""
    low, high, runs = None, 1.0, 0
    fine = 0  # of the runs
    try:
        while fine < FINE and (low is not None or runs < MOST_COARSE):
            fine += low is not None
            factor = min(high / COARSE, high**2) if low is None else math.sqrt(low * high)
            if holds(factor):
                low = factor
            else:
                high = factor
            runs += 1
    except TimeoutError:
        if not runs:
            raise
    return Border(low, high, runs)


def settles(trace: Trace) -> bool:
    """Whether all losses are finite, none leaps away from those before it (a network that has been
    thrown out to where nothing has a slope stays there), and the later half lies below the earlier
    one."""
    losses = [step.loss for step in trace.steps]
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    half = len(known) // 2
    if half == 0 or len(known) < len(losses) or trace.symptoms:
        return False
    if any(leaps(loss, map(abs, known[:at])) for at, loss in enumerate(known) if at):
        return False
    return fmean(known[half:]) <= fmean(known[:half])


def _with(finding: Finding, request: ask.LowerRate, border: Border) -> Finding:
    lr = request.old or 0.0
    high = lr * border.diverges
    low = lr * border.holds if border.holds is not None else None
    found = replace(finding, numbers=(*finding.numbers, tried(low, high, border.runs)))
    if low is None and border.runs < MOST_COARSE:  # out of time
        return replace(found, fixes=tuple(map(_if_likely, finding.fixes)))
    if low is None:  # what still holds far below has stopped to train
        others = (one for one in finding.fixes if not isinstance(one.request, ask.LowerRate))
        return replace(found, fixes=tuple(others))
    return replace(
        found,
        evidence={**finding.evidence, "stable_lr": low, "diverging_lr": high},
        fixes=tuple(_at_most(fix, low) for fix in finding.fixes),
    )


def _if_likely(fix: Fix) -> Fix:
    """A rate that nobody has tried, unless it is so short that nothing would be learnt."""
    request = fix.request
    if not isinstance(request, ask.LowerRate) or request.new is None or request.old is None:
        return fix
    is_likely = request.new >= cutoffs.SHORTEST_STEP * request.old
    return fix if is_likely else proposed(replace(request, new=None))


def _at_most(fix: Fix, stable: float) -> Fix:
    """The learning rate that was seen to hold, where the proposed one is far from it."""
    request = fix.request
    if not isinstance(request, ask.LowerRate) or request.new is None:
        return fix
    if stable / TOO_SMALL <= request.new <= stable:
        return fix
    return proposed(replace(request, new=float(f"{stable:.2g}")))


STEPS = 40  # that the second run may take: by then a wrong gradient has shown, or is a slow poison


def with_aftermath(findings: tuple[Finding, ...], again: Again) -> tuple[Finding, ...]:
    """The findings, the wrong gradient with the first failure that comes of it and its step.

    A program that stays finite in the second run leaves them as they are. Raises TimeoutError
    where the time for that run ended before the run.
    """
    wrong = next(filter(is_wrong_gradient, findings), None)
    steps = min(again.options.steps or STEPS, STEPS)
    if wrong is None or again.options.keep_going or steps < 2:
        return findings
    again.stages.begin(Doing.FOLLOWING)
    try:
        seen = again.run(Purpose.AFTERMATH, steps)
    except GradscopeError:
        return findings
    found = diagnose(seen, again.options.limits)
    later = [f for f in found if f.severity is Severity.ERROR and f.step > wrong.step]
    if not later:
        return findings
    # Its symptoms are those of a run that the report is not about.
    first = replace(min(later, key=lambda finding: finding.step), symptoms=())
    return tuple(consequence(f, first) if f is wrong else f for f in findings)
