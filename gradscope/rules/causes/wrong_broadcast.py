"""A loss over all pairs of a batch, where it was to be over the batch."""

from collections.abc import Iterator

from gradscope.facts import Broadcast, Finding, Root, Severity, Trace
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class WrongBroadcast(Rule):
    """
    ## What it does
    Finds an op between a prediction of shape (n, 1) and data of shape (n,), or the other way round,
    of whose n * n results the loss is a mean or a sum.

    ## Why is this bad?
    Broadcasting pairs each prediction with every target. Nothing raises, and the loss falls: each
    prediction is drawn to the mean of all targets, whatever its input.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    x, y = torch.randn(8, 3), torch.randn(8)
    model = torch.nn.Linear(3, 1)
    - ((model(x) - y) ** 2).mean().backward()
    + ((model(x).squeeze(-1) - y) ** 2).mean().backward()
    ```

    ## Fix safety
    Unsafe: the loss is another one. A warning, since all pairs may be meant; where the column is
    written as `x[:, None]` or by `view` they count as meant.
    """

    code = "GS411"
    name = "wrong-broadcast"
    severity = Severity.WARNING

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from map(self._about, trace.broadcasts)

    def _about(self, one: Broadcast) -> Finding:
        n, op = one.size, phrases.spelled(one.call.op)
        column, row = sorted(one.operands, key=lambda operand: len(operand.shape), reverse=True)
        drawn = "draws each prediction to the mean of all targets"
        if not any(operand.requires_grad for operand in one.operands):
            drawn = "weights each value with the mean of all"  # as with an advantage
        return self.found(
            f"`{op}` pairs each of {n} values with every one of {n} others: ({n}, 1) and ({n},)"
            f" broadcast to ({n}, {n})",
            f"{phrases.name(column, 'One operand')} is a column, and"
            f" {phrases.name(row, 'the other')} has one dimension. The loss is made of all"
            f" {n * n:,} pairs, of which {n} belong together: it {drawn}.",
            one.call,
            step=one.step,
            label=f"makes ({n}, {n}) of ({n}, 1) and ({n},)",
            evidence={"size": n},
            tensors=one.operands,
            fixes=(ask.MatchShapes(column.role, row.role, one.meets_columns),),
        )
