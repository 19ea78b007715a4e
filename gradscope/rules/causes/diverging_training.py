"""GS404."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gradscope.facts import (
    AverageLoss,
    ClearGradients,
    Clearing,
    ClipNorm,
    Finding,
    Fix,
    LowerRate,
    Magnitudes,
    Phase,
    Related,
    Root,
    Severity,
    Step,
    Strength,
    Subject,
    Summed,
    Symptom,
    Trace,
    Trouble,
    Update,
    number,
)
from gradscope.rules.reading.divergence import blamed_sum, is_divergence, never_cleared
from gradscope.rules.reading.overshoots import Overshoot, overshoot
from gradscope.rules.reading.rises import (
    Rise,
    climb_of,
    rise_of,
    stable_lr,
)
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.proposals import proposed

FAR = 1e6  # a first loss, that of targets in the thousands


class DivergingTraining(Rule):
    """
    ## What it does
    Finds a loss that grows from step to step because each update overshoots.

    ## Why is this bad?
    Gradient descent with a step longer than the curvature allows lands farther from the minimum
    than it was, every time. The loss grows by a constant factor a step until it overflows, and
    the op where it does is innocent. Gradients that are never cleared, and a sum where a mean was
    meant, lengthen the step in the same way.

    ## Example
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=3.0)
    for _ in range(12):
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point.

    ## Options
    `thresholds: {loss-growth: 100}` in the configuration: of losses in a row before they
    overflow; a loss that stays finite has to grow ten times as much.
    """

    code = "GS404"
    name = "diverging-training"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        if magnitudes is None or not magnitudes.updates:
            return
        for rise in (rise_of(trace.steps), climb_of(trace.steps)):
            if rise is not None and is_divergence(rise, roots, magnitudes):
                yield self._about(rise, trace.steps, magnitudes, roots)
                return
        if not roots and trace.steps:
            by_clearing: dict[Clearing | None, list[Update]] = {}
            for update in never_cleared(magnitudes):
                own = (one for one in magnitudes.updates if one.location == update.location)
                by_clearing.setdefault(_known_clearing(own), []).append(update)
            for clearing, updates in by_clearing.items():  # what is mended at once is told once
                yield self._not_learning(trace, updates, clearing)

    def _about(
        self, rise: Rise, steps: Sequence[Step], magnitudes: Magnitudes, roots: tuple[Root, ...]
    ) -> Finding:
        update = magnitudes.updates[-1]
        last = rise.first + rise.rises
        consequences = tuple(symptom for root in roots for symptom in root.symptoms)
        stale = any(one.stale for one in magnitudes.updates)
        lr = update.lr
        fault = None if stale else overshoot(magnitudes.updates, rise, steps)
        total = None
        if not stale and fault is None and lr is not None:
            total = blamed_sum(magnitudes.summed, rise, update, lr)
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR,
            phase=Phase.OPTIMIZER,
            step=rise.first + 1,
            op=roots[0].event.op if roots else "step",
            location=update.location,
            message=_headline(rise),
            label="adds the gradients of earlier steps too"
            if stale
            else f"steps {_at(lr)}".strip(),
            why=_why(stale, update, lr, fault) + _why_sum(total, lr) + _why_far(rise),
            related=_adds_up(total),
            evidence={
                "losses": list(rise.losses),
                "factor": rise.factor,
                "lr": lr,
                "optimizer": update.optimizer,
                "stale_gradients": stale,
                "summed_terms": total.terms if total is not None else None,
            },
            numbers=(
                f"loss by step: {phrases.series([_sign(rise) * loss for loss in rise.losses])}",
                *_norms(magnitudes.totals(), rise),
                f"{update.optimizer or 'an update by hand'} {_at(lr)}".strip(),
                *([fault.number] if fault is not None else ()),
                *_terms(total, lr),
            ),
            symptoms=(Symptom(Trouble.DIVERGING, Subject.LOSS, last, "loss"), *consequences),
            chain=roots[0].chain if roots else (),
            fixes=tuple(_fixes(rise, magnitudes.updates, lr, stale, fault, total)),
        )

    def _not_learning(
        self, trace: Trace, updates: Sequence[Update], clearing: Clearing | None
    ) -> Finding:
        update, *others = updates
        assert trace.magnitudes is not None
        own = {one.step for one in trace.magnitudes.updates if one.location == update.location}
        losses = [step.loss or 0.0 for step in trace.steps if step.index in own]
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR,
            phase=Phase.OPTIMIZER,
            step=1,
            op="step",
            location=update.location,
            message=f"the gradients are never cleared, and over {len(losses)} steps the loss goes"
            f" from {number(losses[0])} to {number(losses[-1])}",
            label="adds the gradients of earlier steps too",
            why="The gradients were not cleared between one step and the next backward, so each"
            " step goes along the sum of all gradients so far. That is a momentum of 1, which never"
            " forgets: training swings around its minimum, or away from it.",
            evidence={"losses": losses[:64], "lr": update.lr, "stale_gradients": True},
            numbers=(f"loss by step: {phrases.series(losses)}",),
            related=tuple(
                Related("use", one.location, "and so does this")
                for one in others
                if one.location is not None
            ),
            fixes=(proposed(ClearGradients(clearing)),),
            strength=Strength.FALLBACK,
        )


def _headline(rise: Rise) -> str:
    first, last = rise.first, rise.first + rise.rises
    start, end = number(_sign(rise) * rise.losses[0]), number(_sign(rise) * rise.end)
    if rise.leaps:
        return (
            f"the loss leaps x{number(rise.leap, 3)} in one step, and at step {last} is still at"
            f" {end}, x{number(rise.total, 3)} its start"
        )
    grows = f"the loss grows x{number(rise.factor, 3)} per step"
    if rise.falls:
        size = f"x{number(rise.factor, 3)} per step"
        return f"the loss falls without end, {size} from step {first} to {last}: {start} to {end}"
    if rise.steady:
        return f"{grows} from step {first} to {last}: {start} to {end}"
    return f"{grows} on average from step {first} to {last}: {start} to above {end}"


def _sign(rise: Rise) -> int:
    return -1 if rise.falls else 1


def _at(lr: float | None) -> str:
    return f"with lr {lr:g}" if lr is not None else ""


def _why(stale: bool, update: Update, lr: float | None, fault: Overshoot | None = None) -> str:
    if stale:
        step = "`optimizer.step()`" if update.optimizer else "an update"
        return (
            f"The gradients were not cleared between {step} and the next backward, so"
            " each step goes along the sum of all gradients so far and overshoots more and more."
        )
    if fault is not None:
        return f"{fault.why} Every op is innocent; an overflow is only where the growth ends."
    step = f"step of {update.optimizer}" if update.optimizer else "update"
    return (
        f"Each {f'{step} {_at(lr)}'.strip()} lands farther from the minimum than"
        " it started, so the next gradient is larger and so is the next step. Every op is innocent;"
        " an overflow is only where the growth ends."
    )


def _why_sum(total: Summed | None, lr: float | None) -> str:
    if total is None or lr is None:
        return ""
    return (
        f" The loss is a sum over {total.terms:,} terms, so its gradient, and with it each step, is"
        f" {total.terms:,} times that of the mean: lr {lr:g} acts like"
        f" {lr * total.terms:g}, and it grows with the batch."
    )


def _why_far(rise: Rise) -> str:
    if not _starts_far(rise):
        return ""
    return (
        f" Training starts at a loss of {number(rise.losses[0])}: the targets, or the inputs, are"
        " far from what a new model is made for, and the gradient is as large."
    )


def _starts_far(rise: Rise) -> bool:
    return rise.first == 0 and rise.losses[0] >= FAR


def _adds_up(total: Summed | None) -> tuple[Related, ...]:
    if total is None or total.location is None:
        return ()
    return (Related("use", total.location, f"adds up {total.terms:,} terms, no mean"),)


def _terms(total: Summed | None, lr: float | None) -> Iterator[str]:
    if total is not None and lr is not None:
        yield f"`{total.op}` adds up {total.terms:,} terms: lr x terms = {lr * total.terms:g}"


def _norms(totals: tuple[float, ...], rise: Rise) -> Iterator[str]:
    shown = [norm for norm in totals[rise.first : rise.first + rise.rises + 1] if norm]
    if shown:
        yield f"gradient norm by step: {phrases.series(shown)}"


def _fixes(
    rise: Rise,
    updates: Sequence[Update],
    lr: float | None,
    stale: bool,
    fault: Overshoot | None,
    total: Summed | None,
) -> Iterator[Fix]:
    if stale:
        yield proposed(ClearGradients(_known_clearing(updates)))
    if fault is not None:
        yield fault.fix
    if total is not None:
        yield proposed(AverageLoss(total))
    yield proposed(_slower(rise, updates[-1], lr, stale))
    yield Fix(
        "data",
        f"bring the inputs{' and the targets' if _starts_far(rise) else ''} to mean 0 and spread 1",
        "display-only",
        "x = (x - x.mean(0)) / x.std(0)",
    )
    yield proposed(ClipNorm())


def _slower(rise: Rise, update: Update, lr: float | None, stale: bool) -> LowerRate:
    if lr is None:
        return LowerRate()
    can_try = bool(update.optimizer) and not stale  # what is steep is the sum, or has no rate
    steps = 2 * (rise.first + 1 + len(rise.losses)) if can_try else None
    return LowerRate(lr, stable_lr(rise, lr), update, steps)


def _known_clearing(updates: Iterable[Update]) -> Clearing | None:
    return next((one.clearing for one in updates if one.clearing is not None), None)
