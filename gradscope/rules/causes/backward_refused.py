"""Autograd raised: the line that caused it, which is hardly ever the one that noticed."""

from collections.abc import Iterator

from gradscope.facts import Finding, Phase, Refusal, Root, Trace, refusals
from gradscope.rules.reading.after_refusal import requests
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording.refused_words import words


class BackwardRefused(Rule):
    """
    ## What it does
    Finds the line that made autograd raise: a tensor changed in place that backward still needs, a
    part of the graph that an earlier backward has freed, a loss that was cut off from what is to
    learn, gradients that were switched off for good, a gradient in the loss whose backward has no
    derivative of its own, a leaf written in place, a loss of more than one number, or of Python's.
    Also the line behind a gradient that is None, since its tensor is no leaf, a step past the
    GradScaler that waits for it, and an optimizer that was loaded with the state of other
    parameters, or whose gradients are sparse where it takes dense ones alone, or the other way
    round. And what torch refuses since it is no leaf, or no number with a slope: what an optimizer
    is given, whole numbers that are to have a gradient, a parameter that is replaced by a tensor, a
    tensor with a graph that NumPy is to read.

    ## Why is this bad?
    The exception names the call of `backward()`, which has only noticed. The cause lies in the
    forward pass, or in an earlier step.

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x.sigmoid()
    - y += 1
    + y = y + 1
    y.sum().backward()
    ```

    ## Fix safety
    Unsafe: what raised will run, and where a graph is let go of, nothing learns through it.
    """

    code = "GS303"
    name = "backward-refused"
    phase = Phase.BACKWARD

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        refusal = trace.refusal
        # Tensors that a module was to run with, and did not, are what it does not depend on.
        is_apart = isinstance(refusal, refusals.NotUsed | refusals.WithoutGraph)
        is_told = is_apart and any(one.is_sure for one in trace.unknown_names)
        if refusal is not None and not is_told:
            yield self._about(refusal)

    def _about(self, refusal: Refusal) -> Finding:
        told = words(refusal)
        place = told.place or refusal.raised_at
        raised = ((refusal.raised_at, told.raised),)
        related = {at: what for at, what in (*raised, *told.others) if at and at != place}
        return self.found(
            told.headline,
            told.why,
            step=refusal.step,
            op=told.op,
            location=place,
            label=told.label,
            related=places(*(("use", at, what) for at, what in related.items())),
            evidence=told.evidence,
            numbers=told.numbers,
            fixes=tuple(requests(refusal)),
        )
