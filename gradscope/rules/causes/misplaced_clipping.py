"""Gradients that are clipped before backward, after the step, or while they are scaled."""

from collections.abc import Iterator

from gradscope.facts import Finding, LateClip, Phase, Root, Severity, Trace, number
from gradscope.facts import requests as ask
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule, places

# For each wrong order: what the function does, the label, the mechanism, and what the other call
# does, which should have come at another time.
_WORDS = {
    "after-step": (
        "bounds gradients{of_norm} to {bound} after the optimizer has used them",
        "too late for this step",
        "The step was taken along the gradients as backward left them. `{function}` then bounds"
        " what nobody reads any more: the next backward starts afresh.{idle}",
        "uses the gradients",
    ),
    "before-unscale": (
        "bounds gradients{of_norm} to {bound} while they are {scale} times too large",
        "the loss scale is still in there",
        "A GradScaler multiplies the loss, and so every gradient, by its scale, and divides them"
        " again in `unscale_`, which comes later here. The bound {bound} becomes {unscaled} for the"
        " gradients that the optimizer gets.",
        "divides by the loss scale",
    ),
    "before-backward": (
        "bounds gradients{of_norm} to {bound} before backward has made them",
        "there are no gradients here yet",
        "The gradients were cleared, and backward has yet to run: there is nothing to clip, and no"
        " error is raised. The step then uses what backward makes, unbounded.{idle}",
        "uses the gradients as backward left them",
    ),
    "between-passes": (
        "bounds gradients{of_norm} to {bound} after each of the passes whose gradients one step"
        " adds up",
        "cuts down a part of the sum",
        "Each pass adds its gradient to those of the passes before, and the sum so far is bounded"
        " again: the first ones are cut down several times, the last one once. The step goes in"
        " another direction than the sum of the gradients has.{idle}",
        "uses the sum of all passes",
    ),
    "of-nothing": (
        "is given no parameter, and bounds nothing: the gradients are{of_norm}",
        "is given no parameter",
        "What it goes through is empty. An iterator, as `filter(...)` and `parameters()` give, ends"
        " when it has been gone through once: the second time there is nothing in it. The step"
        " uses the gradients as backward left them.{idle}",
        "uses them, unbounded",
    ),
}


class MisplacedClipping(Rule):
    """
    ## What it does
    Finds gradients that are clipped at the wrong time: before backward has made them, after the
    optimizer has used them, while they still carry the loss scale of a `GradScaler`, or after each
    of several passes instead of once for the step that adds them up; and a clipping that is given
    no parameter.

    ## Why is this bad?
    Before backward, and after the step, nothing is bounded. Before `unscale_` the bound is compared
    with gradients that are thousands of times too large: they are all cut down, and once they are
    unscaled almost nothing is left to train with.

    ## Example
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        w.pow(4).sum().backward()
    +     torch.nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()
    -     torch.nn.utils.clip_grad_norm_([w], 1.0)
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point.

    ## References
    "Gradient clipping" in PyTorch's notes on automatic mixed precision.
    """

    code = "GS405"
    name = "misplaced-clipping"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from map(self._about, trace.magnitudes.clips)

    def _about(self, clip: LateClip) -> Finding:
        bound = number(clip.bound, 6)
        does, label, why, other = (
            template.format(
                function=clip.function,
                scale=number(clip.scale),
                bound=bound,
                of_norm="" if clip.total is None else f" of norm {number(clip.total)}",
                unscaled=number(clip.bound / clip.scale, 3),
                idle="" if clip.acts else " In this run they were within the bound anyway.",
            )
            for template in _WORDS[clip.order]
        )
        unscale, summed = clip.order == "before-unscale", clip.order == "between-passes"
        moved: ask.Request = ask.MoveClipping(unscale, clip.function, clip.bound, summed)
        if clip.order == "of-nothing":
            moved = ask.KeepAsList()
        return self.found(
            f"`{clip.function}` {does}",
            why,
            severity=Severity.ERROR if clip.acts else Severity.NOTE,
            step=clip.step,
            op=clip.function,
            location=clip.location,
            label=label,
            related=places(("use", clip.other, other)),
            evidence={
                **measurements.fields_of(clip, "order", "bound", "scale"),
                "total_norm": clip.total,
            },
            numbers=tuple(_numbers(clip)),
            fixes=(moved,),
        )


def _numbers(clip: LateClip) -> Iterator[str]:
    bound = f"bound {number(clip.bound, 6)}"
    yield bound if clip.total is None else f"{bound}, norm there {number(clip.total)}"
    if clip.scale != 1:
        yield f"loss scale {number(clip.scale)}"
