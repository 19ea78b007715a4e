"""GS405."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import Finding, Fix, LateClip, Phase, Related, Root, Severity, Trace, text_of
from gradscope.rules.rule import Rule


class MisplacedClipping(Rule):
    """
    ## What it does
    Finds gradients that are clipped when it does not help: after the optimizer has used them, or
    while they still carry the loss scale of a `GradScaler`.

    ## Why is this bad?
    After the step nothing is bounded, and the spike that the clipping was written for goes through.
    Before `unscale_` the bound is compared with gradients that are thousands of times too large:
    all of them are cut down, and once they are unscaled next to nothing is left to train with.

    ## Example
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        w.pow(4).sum().backward()
        optimizer.step()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
    ```

    ## Use instead
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        w.pow(4).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point.

    ## References
    "Gradient clipping" in PyTorch's notes on automatic mixed precision.
    """

    code = "GS405"
    name = "misplaced-clipping"
    severity = Severity.WARNING

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for clip in trace.magnitudes.clips if trace.magnitudes is not None else ():
            yield self._about(clip)

    def _about(self, clip: LateClip) -> Finding:
        late = clip.order == "after-step"
        seen = "" if clip.total is None else f" of norm {text_of(clip.total, 4)}"
        return Finding(
            rule=self.code,
            name=self.name,
            severity=self.severity if clip.acts else Severity.NOTE,
            phase=Phase.OPTIMIZER,
            step=clip.step,
            op=clip.function,
            location=clip.location,
            message=f"`{clip.function}` bounds gradients{seen} to {text_of(clip.bound)} after the"
            " optimizer has used them"
            if late
            else f"`{clip.function}` bounds gradients{seen} to {text_of(clip.bound)} while they are"
            f" {text_of(clip.scale)} times too large",
            label="too late for this step" if late else "the loss scale is still in there",
            why=_why(clip),
            related=_related(clip),
            evidence={
                "order": clip.order,
                "bound": clip.bound,
                "total_norm": clip.total,
                "scale": clip.scale,
            },
            numbers=tuple(_numbers(clip)),
            fixes=(_fix(clip),),
            confidence=0.9,
        )


def _why(clip: LateClip) -> str:
    if clip.order == "after-step":
        idle = "" if clip.acts else " In this run they were within the bound anyway."
        return (
            f"The step was taken along the gradients as backward left them. `{clip.function}`"
            f" then bounds what nobody reads any more: the next backward starts afresh.{idle}"
        )
    return (
        "A GradScaler multiplies the loss, and so every gradient, by its scale, and divides them"
        f" again in `unscale_`, which comes later here. The bound {text_of(clip.bound)} becomes"
        f" {text_of(clip.bound / clip.scale, 3)} for the gradients that the optimizer gets."
    )


def _related(clip: LateClip) -> tuple[Related, ...]:
    if clip.other is None:
        return ()
    said = "uses the gradients" if clip.order == "after-step" else "divides by the loss scale"
    return (Related("use", clip.other, said),)


def _numbers(clip: LateClip) -> Iterator[str]:
    bound = f"bound {text_of(clip.bound)}"
    yield bound if clip.total is None else f"{bound}, norm there {text_of(clip.total, 4)}"
    if clip.scale != 1:
        yield f"loss scale {text_of(clip.scale)}"


def _fix(clip: LateClip) -> Fix:
    call = f"torch.nn.utils.{clip.function}(parameters, {text_of(clip.bound)})"
    if clip.order == "after-step":
        title, code = "clip between backward and the step", f"{call}\noptimizer.step()"
    else:
        title = "unscale the gradients before they are clipped"
        code = f"scaler.unscale_(optimizer)\n{call}"
    return Fix("clip-norm", title, "unsafe", code)
