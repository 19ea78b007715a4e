"""Gradients that no step uses, and steps that change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import (
    ClearAfterStep,
    Finding,
    Fix,
    KeepScaler,
    Location,
    Phase,
    Related,
    Root,
    Severity,
    SlowSchedule,
    StepAfterBackward,
    StepAtTheEnd,
    StepWhereCleared,
    Subject,
    Symptom,
    Trace,
    Trouble,
    WiderWeights,
)
from gradscope.rules.reading.lost import Loss, Lost, losses
from gradscope.rules.rule import Rule
from gradscope.rules.wording.lost_words import numbers, words
from gradscope.rules.wording.proposals import proposed


class LostUpdate(Rule):
    """
    ## What it does
    Finds gradients that never move a parameter: no step uses them, they are cleared before one
    does, a schedule has brought the learning rate to 0, half precision rounds the step away. Also
    those that several steps use, since they are cleared too seldom.

    ## Why is this bad?
    Nothing raises and nothing is NaN. The loss is computed, backward runs, and training does not do
    what was written: the parameters stay as they are, or learn from a part of the batches alone.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
    -     optimizer.zero_grad()
        (model(torch.randn(8, 4)).square().mean() / 4).backward()
        if step % 4 == 3:
            optimizer.step()
    +         optimizer.zero_grad()
    ```

    ## Fix safety
    Unsafe: parameters that stood still will move.
    """

    code = "GS407"
    name = "lost-update"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        if trace.magnitudes is not None and not roots:
            for lost in losses(trace, trace.magnitudes):
                yield self._about(lost)

    def _about(self, lost: Lost) -> Finding:
        usage, said = lost.usage, words(lost)
        place, others = _places(lost)
        return self.found(
            said.headline,
            said.why,
            severity=_severity(lost),
            phase=Phase.OPTIMIZER,
            step=usage.rates.since if lost.how is Loss.IDLE else usage.last,
            op="step",
            location=place,
            label=said.label,
            related=tuple(Related("use", at, what) for at, what in others if at != place),
            evidence={
                "reason": lost.how.name.lower().replace("_", "-"),
                "optimizer": usage.optimizer,
                "updates": usage.updates,
                "passes": usage.passes,
                "lost": lost.passes,
                "of": lost.of,
            },
            numbers=tuple(numbers(lost)),
            symptoms=_symptoms(lost),
            fixes=_fixes(lost),
        )


def _severity(lost: Lost) -> Severity:
    is_mild = lost.how is Loss.LEFT_OVER or (lost.how is Loss.IDLE and 2 * lost.passes < lost.of)
    return Severity.WARNING if is_mild else Severity.ERROR


def _places(lost: Lost) -> tuple[Location | None, tuple[tuple[Location, str], ...]]:
    """Where to point, and other places with what happens there."""
    usage = lost.usage
    made = (usage.made, f"`{usage.optimizer}` is made here")
    steps, backward = (usage.steps_at, "steps here"), (lost.backward, "the gradients are made here")
    others: tuple[tuple[Location | None, str], ...] = (made,)
    match lost.how:
        case Loss.NEVER_STEPS:
            place, others = lost.backward, (made, (usage.clears_at, "cleared here"))
        case Loss.SKIPPED:
            place = usage.skipping.location if usage.skipping is not None else None
        case Loss.IDLE:
            schedule = usage.schedule
            place = (schedule.moved_at if schedule else None) or usage.steps_at
            others = ((schedule.made if schedule else None, "sets the learning rate"), steps)
        case Loss.ROUNDED:
            place = usage.steps_at
        case Loss.THROWN_AWAY:
            place, others = usage.clears_at or usage.steps_at, (steps, backward)
        case Loss.USED_AGAIN:
            place, others = usage.steps_at, ((usage.clears_at, "cleared here"),)
        case Loss.LEFT_OVER:
            place, others = usage.steps_at, (backward, (usage.clears_at, "cleared here"))
    return place, tuple((at, what) for at, what in others if at is not None)


def _symptoms(lost: Lost) -> tuple[Symptom, ...]:
    usage = lost.usage
    if lost.how is Loss.ROUNDED:
        last = usage.movements[-1]
        still = last.still, last.pulled
        return (Symptom(Trouble.UNCHANGED, Subject.PARAMETER, last.step, last.leaf, *still),)
    if lost.how in (Loss.THROWN_AWAY, Loss.USED_AGAIN, Loss.LEFT_OVER):
        return ()
    return tuple(
        Symptom(Trouble.UNCHANGED, Subject.PARAMETER, usage.last, name) for name in usage.held
    )


def _fixes(lost: Lost) -> tuple[Fix, ...]:
    usage = lost.usage
    match lost.how:
        case Loss.NEVER_STEPS:
            return (proposed(StepAfterBackward(usage)),)
        case Loss.SKIPPED:
            if usage.skipping is not None and usage.skipping.last < usage.skipping.first:
                title = "find the op that makes inf or NaN: run without the scaler"
                return (Fix("loss-scaling", title, code="GradScaler(device, enabled=False)"),)
            return (proposed(KeepScaler()),)
        case Loss.IDLE:
            return (proposed(SlowSchedule(usage)),)
        case Loss.ROUNDED:
            return (proposed(WiderWeights(usage.movements[-1].dtype)),)
        case Loss.THROWN_AWAY:
            if usage.cycles[0] > 1:  # or the passes that begin a cycle are meant to end one
                return (proposed(ClearAfterStep(usage)), proposed(StepAtTheEnd(usage)))
            return (proposed(ClearAfterStep(usage)),)
        case Loss.USED_AGAIN:
            return (proposed(StepWhereCleared(usage)),)
        case Loss.LEFT_OVER:
            return (proposed(StepAtTheEnd(usage)),)
