"""An inf or NaN that is hidden on the way to a healthy loss."""

from collections.abc import Iterator

from gradscope.facts import Event, Finding, Root, Severity, Trace
from gradscope.ops.traits import Trait, has
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class HiddenInf(Rule):
    """
    ## What it does
    Finds an inf or NaN that a mask, a clamp or an index hides on its way to a healthy loss.

    ## Why is this bad?
    Backward visits the hidden elements too, with gradient 0. This time the slope there is finite
    and 0 stays 0. With another operand or mask it is 0 times inf, NaN (GS101), though nothing in
    the forward pass has changed.

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 6e4], dtype=torch.float16, requires_grad=True)
    - (x + 3e4).clamp(max=5e4).float().sum().backward()
    + (x.clamp(max=2e4) + 3e4).float().sum().backward()
    ```

    ## Fix safety
    There is no patch: which operand to keep in range, or which dtype to compute in, is a choice.
    """

    code = "GS601"
    name = "hidden-inf"
    severity = Severity.WARNING
    of_hazards = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        broken = {root.event.blame.location for root in roots}
        for event in trace.hidden:
            hider = event.hidden_by
            # torch's own losses hide what they are asked to: ctc_loss with zero_infinity.
            by_itself = hider is not None and hider.location == event.blame.location
            intended = by_itself or (hider is not None and has(hider.op, Trait.CLEANS))
            is_visited = hider is None or hider.seq is not None  # by backward
            if event.blame.location not in broken and is_visited and not intended:
                yield self._about(event)

    def _about(self, event: Event) -> Finding:
        op, word = phrases.spelled(event.op), phrases.outcome(event.output)
        hider = event.hidden_by
        hides = f"`{phrases.spelled(hider.op)}`" if hider else "a later op"
        count = phrases.of_total(event.bad, event.numel)
        place = hider.location if hider is not None else None
        return self.about_event(
            event,
            f"`{op}` gives {word} at {count}, which {hides} hides from the loss",
            f"The loss and its gradients are finite. Backward sends gradient 0 through `{op}`"
            " at these elements, and 0 stays 0 only as long as the slope there is finite.",
            label=f"{word} here",
            related=places(("mask", place, "hides it going forward")),
        )
