"""A part of the forward pass that backward runs again, with other random numbers."""

from collections.abc import Iterator

from gradscope.facts import Finding, Phase, Redraw, Root, Trace
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class RedrawnNumbers(Rule):
    """
    ## What it does
    Finds a part of the forward pass that backward runs again, to save memory, and whose dropout
    draws other random numbers there.

    ## Why is this bad?
    The gradient is that of another network than the one that made the loss: one in which other
    units are dropped. Nothing raises, and the loss may still fall, more slowly and to a worse end.
    In layers that are run backwards, as in a reversible network, what is rebuilt is wrong as well.

    ## Example
    ```python
    import torch
    from torch.utils.checkpoint import checkpoint

    part = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5))
    x = torch.randn(2, 4)
    - y = checkpoint(part, x, use_reentrant=False, preserve_rng_state=False)
    + y = checkpoint(part, x, use_reentrant=False)
    y.sum().backward()
    ```

    ## Fix safety
    Unsafe: the gradients are others. They are those of the loss then.
    """

    code = "GS306"
    name = "redrawn-numbers"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from map(self._about, trace.redraws)

    def _about(self, one: Redraw) -> Finding:
        op = phrases.spelled(one.op)
        who = "The program's own backward" if one.own else "`checkpoint`, in backward,"
        kept = "without the state that the generator had" if one.own else "as it is told to"
        (place, first), *others = one.places
        uses = [("use", first, "runs it first")] if one.own else []
        uses += [("use", again, "draws anew too") for again, _ in others]
        return self.found(
            f"backward runs a part of the forward pass again, and `{op}` draws other numbers there",
            f"{who} computes this part once more, {kept}. Other elements are dropped than in the"
            " forward pass: the gradient is not that of the loss.",
            phase=Phase.BACKWARD if one.own else Phase.FORWARD,
            step=one.step,
            op=one.op,
            location=place,
            label="draws anew",
            related=places(*uses),
            fixes=(
                ask.RestoreRandomState(one.places, one.device)
                if one.own
                else ask.KeepRandomState(),
            ),
        )
