"""Gradients of several passes whose sum is used where their mean was meant."""

from collections.abc import Iterator

from gradscope.facts import Finding, Location, Phase, Root, Severity, Trace, Usage, number, plural
from gradscope.facts import requests as ask
from gradscope.rules.cutoffs import FEWEST_TERMS
from gradscope.rules.reading.divergence import averaged_again, undivided
from gradscope.rules.reading.lost import backward_of
from gradscope.rules.rule import Rule, places


class WrongAverage(Rule):
    """
    ## What it does
    Finds a step that uses the sum of the gradients of several passes, each of them of a loss that
    is a mean: gradient accumulation without a division. Also gradients that are divided by the
    number of ranks once more, after DistributedDataParallel has averaged them.

    ## Why is this bad?
    Backward adds to the gradients that are there. The sum over N small batches is N times the
    gradient of one large batch, so the learning rate acts like N times as much, and a bound for the
    norm is met N times as early. An optimizer that divides by the size of the gradient, as Adam
    does, hides that: there it is a note, as it is over two or three passes, which may be the terms
    of one loss.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        loss = model(torch.randn(8, 4)).square().mean()
    -     loss.backward()
    +     (loss / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## Fix safety
    Unsafe: steps become shorter, so the learning rate may have to be another one. A sum on purpose,
    as over the tasks of one step, needs no repair.
    """

    code = "GS409"
    name = "wrong-average"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for usage in () if roots else trace.magnitudes.usages:
            if averaged_again(usage):
                yield self._about_ranks(usage, backward_of(usage, trace.steps))
            found = undivided(usage, trace.magnitudes, trace.steps)
            if found is not None:
                yield self._about(usage, found)

    def _about_ranks(self, usage: Usage, backward: Location | None) -> Finding:
        by_hand = usage.scaled != 1.0
        what = "the gradients are" if by_hand else "the loss is"
        is_blind, rate = usage.blind_to_scale, usage.rates.last
        place = usage.scaled_at if by_hand else backward
        return self.found(
            f"the gradients that `{usage.optimizer}` gets are averaged twice over"
            f" {usage.ranks} ranks",
            "DistributedDataParallel divides the sum of the gradients by the number of ranks, and"
            f" {what} divided by it once more: each step is {usage.ranks} times too short, lr"
            f" {number(rate, 3)} acts like {number(rate / usage.ranks, 3)}.",
            severity=Severity.NOTE if is_blind else Severity.WARNING,
            step=usage.last,
            op="step",
            location=place,
            label="divides what is an average" if by_hand else "is of a loss that was divided",
            evidence={"optimizer": usage.optimizer, "ranks": usage.ranks, "by_hand": by_hand},
            fixes=(ask.AverageOnce(place, by_hand),) if place is not None else (),
        )

    def _about(self, usage: Usage, request: ask.DivideLoss) -> Finding:
        passes, rate = request.passes, usage.rates.last
        is_blind = usage.blind_to_scale
        acts = (
            f" `{usage.optimizer}` divides by the size of the gradient and takes much the same"
            " steps; a bound for the norm, and what is logged of it, are another matter."
            if is_blind
            else f" lr {number(rate, 3)} acts like {number(passes * rate, 3)}."
        )
        return self.found(
            f"each step of `{usage.optimizer}` uses the sum of {passes} passes, and nothing"
            " divides it by their number",
            "The loss of each pass is a mean, and backward adds its gradient to those of the passes"
            f" before: the step gets {passes} times the gradient of one batch of that size.{acts}",
            severity=Severity.NOTE if is_blind or passes < FEWEST_TERMS else Severity.WARNING,
            step=usage.last,
            op="step",
            location=request.backward,
            label=f"is added up over {passes} passes",
            related=places(("use", usage.steps_at, "uses the sum")),
            evidence={
                "optimizer": usage.optimizer,
                "passes": passes,
                "factor": 1.0,
                "updates": usage.updates,
            },
            numbers=(f"{plural(usage.updates, 'step')} of {passes} backward passes each",),
            fixes=(request,),
        )
