"""GS405."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.facts import (
    Finding,
    LateClip,
    MoveClipping,
    Phase,
    Related,
    Root,
    Severity,
    Trace,
    number,
)
from gradscope.rules.rule import Rule
from gradscope.rules.wording.proposals import proposed


class MisplacedClipping(Rule):
    """
    ## What it does
    Finds gradients that are clipped at the wrong time: before backward has made them, after the
    optimizer has used them, or while they still carry the loss scale of a `GradScaler`.

    ## Why is this bad?
    Before backward, and after the step, nothing is bounded, and the spike that the clipping was
    written for goes through. Before `unscale_` the bound is compared with gradients that are
    thousands of times too large: all of them are cut down, and once they are unscaled next to
    nothing is left to train with.

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
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for clip in trace.magnitudes.clips if trace.magnitudes is not None else ():
            yield self._about(clip)

    def _about(self, clip: LateClip) -> Finding:
        words = _WORDS[clip.order](clip)
        moved = MoveClipping(clip.order == "before-unscale", clip.function, clip.bound)
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR if clip.acts else Severity.NOTE,
            phase=Phase.OPTIMIZER,
            step=clip.step,
            op=clip.function,
            location=clip.location,
            message=f"`{clip.function}` bounds {_gradients(clip)} to {number(clip.bound, 6)}"
            f" {words.when}",
            label=words.label,
            why=words.why,
            related=(Related("use", clip.other, words.other),) if clip.other is not None else (),
            evidence={
                "order": clip.order,
                "bound": clip.bound,
                "total_norm": clip.total,
                "scale": clip.scale,
            },
            numbers=tuple(_numbers(clip)),
            fixes=(proposed(moved),),
        )


@dataclass(frozen=True, slots=True)
class _Words:
    """What is said of one wrong order. `other` is about the call that should have come at another
    time,"""

    when: str
    label: str
    why: str
    other: str


def _after_step(clip: LateClip) -> _Words:
    idle = "" if clip.acts else " In this run they were within the bound anyway."
    return _Words(
        when="after the optimizer has used them",
        label="too late for this step",
        why="The step was taken along the gradients as backward left them."
        f" `{clip.function}` then bounds what nobody reads any more: the next backward starts"
        f" afresh.{idle}",
        other="uses the gradients",
    )


def _before_unscale(clip: LateClip) -> _Words:
    return _Words(
        when=f"while they are {number(clip.scale)} times too large",
        label="the loss scale is still in there",
        why="A GradScaler multiplies the loss, and so every gradient, by its scale, and divides"
        " them again in `unscale_`, which comes later here. The bound"
        f" {number(clip.bound, 6)} becomes {number(clip.bound / clip.scale, 3)} for the gradients"
        " that the optimizer gets.",
        other="divides by the loss scale",
    )


def _before_backward(clip: LateClip) -> _Words:
    idle = "" if clip.acts else " In this run they were within the bound anyway."
    return _Words(
        when="before backward has made them",
        label="there are no gradients here yet",
        why="The gradients were cleared, and backward has yet to run: there is nothing to clip, and"
        f" no error is raised. The step then uses what backward makes, unbounded.{idle}",
        other="uses the gradients as backward left them",
    )


_WORDS = {
    "before-backward": _before_backward,
    "before-unscale": _before_unscale,
    "after-step": _after_step,
}


def _gradients(clip: LateClip) -> str:
    return "gradients" if clip.total is None else f"gradients of norm {number(clip.total)}"


def _numbers(clip: LateClip) -> Iterator[str]:
    bound = f"bound {number(clip.bound, 6)}"
    yield bound if clip.total is None else f"{bound}, norm there {number(clip.total)}"
    if clip.scale != 1:
        yield f"loss scale {number(clip.scale)}"
