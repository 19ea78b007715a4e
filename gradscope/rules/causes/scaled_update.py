"""An update along gradients that still carry the scale of a GradScaler, or that it has divided by
a scale which they never had."""

from collections.abc import Iterator

from gradscope.facts import (
    Finding,
    Phase,
    Root,
    ScaledUpdate,
    Severity,
    Trace,
    UnscaledPass,
    number,
)
from gradscope.facts import requests as ask
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule


class ScaledStep(Rule):
    """
    ## What it does
    Finds an optimizer that steps without the `GradScaler` which has multiplied its loss. Also finds
    one of several losses that it has not multiplied before it divides the gradients of all of them.

    ## Why is this bad?
    The scaler divides the gradients again where it takes the step itself, and leaves a step out
    whose gradients are inf. Past it, the step goes along gradients that are thousands of times too
    large, and nothing keeps inf out of the parameters. No error is raised as long as the scaler
    takes the step of another optimizer. A loss that was not multiplied is divided all the same: its
    gradients count for thousands of times less than they should, and nothing is learnt from it.

    ## Example
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=1e-8)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(w.square().sum()).backward()
    -     optimizer.step()
    +     scaler.step(optimizer)
    +     scaler.update()
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point. A warning where the optimizer divides by
    the size of its gradients, as Adam does: there the inf is what is left.

    ## References
    "Working with Multiple Models, Losses, and Optimizers" in PyTorch's examples of automatic mixed
    precision.
    """

    code = "GS417"
    name = "scaled-update"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        if trace.refusal is None:
            yield from map(self._about, trace.magnitudes.scaled_updates)

    def _about(self, update: ScaledUpdate | UnscaledPass) -> Finding:
        scale, severity = number(update.scale, 6), Severity.ERROR
        request: ask.Request
        if isinstance(update, UnscaledPass):
            phase, op, label = Phase.BACKWARD, "backward", "of a loss that is not scaled"
            headline = (
                f"this loss was not multiplied by {scale}, by which its gradients are divided"
            )
            why = (
                f"`{update.optimizer}` steps along the sum of the gradients of several losses,"
                f" which a GradScaler has divided by its scale, {scale}. It has multiplied the"
                " others by that, and this one never: next to them nothing is left of it."
            )
            request = ask.ScaleThisLoss()
        else:
            phase, op, label = self.phase, "step", "steps without the scaler"
            headline = (
                f"`{update.optimizer}` steps along gradients that are {scale} times too large"
            )
            why = (
                f"A GradScaler has multiplied the loss, and so every gradient, by {scale}. It"
                " divides them again where it takes the step itself, and leaves the step out where"
                " one is inf: this optimizer steps past it."
            )
            if update.blind:
                severity = Severity.WARNING
                why += " What it divides by the size of its gradients comes out as ever, but for"
                why += " its eps."
            request = ask.StepThroughScaler()
        return self.found(
            headline,
            why,
            severity=severity,
            phase=phase,
            step=update.step,
            op=op,
            location=update.location,
            label=label,
            evidence=measurements.fields_of(update, "optimizer", "scale"),
            numbers=(f"loss scale {scale}",),
            fixes=(request,),
        )
