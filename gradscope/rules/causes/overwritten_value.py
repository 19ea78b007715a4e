"""A write into what an op has saved for its backward, which autograd does not see."""

from collections.abc import Iterator

from gradscope.facts import Finding, Location, Overwrite, Phase, Root, Subject, Trace, Trouble
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule, places, symptoms
from gradscope.rules.wording import phrases


class OverwrittenValue(Rule):
    """
    ## What it does
    Finds a write that autograd does not see, into what an op has saved for its backward: through
    `.data`, or into what a custom Function keeps on its `ctx` as an attribute.

    ## Why is this bad?
    Autograd refuses to use a saved tensor that was written to in place. Through `.data` it does not
    notice, and backward computes with values that the forward pass never had. The gradient is
    finite, and wrong.

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    - y = x.exp()
    - y.data[0] = 0.0
    + y = x.exp().clone()
    + y[0] = 0.0
    y.square().sum().backward()
    ```

    ## Fix safety
    Unsafe: the values stay the same, the gradient becomes that of the values as they are used.
    """

    code = "GS302"
    name = "overwritten-value"
    phase = Phase.BACKWARD

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        first = {(one.call.location, one.location): one for one in reversed(trace.overwrites)}
        return map(self._about, reversed(first.values()))

    def _about(self, one: Overwrite) -> Finding:
        op, writer = phrases.spelled(one.call.op), phrases.spelled(one.writer)
        if one.kept_at is not None:
            return self._about_kept(one, one.kept_at, op, writer)
        return self.found(
            f"`{writer}` overwrites what `{op}` has saved for its backward, and autograd does not"
            " see it",
            f"`{op}` computes its gradient from values that it saved going forward. This line"
            " wrote into their memory before backward read it, by a tensor that does not share"
            " their version (`.data`), so autograd did not refuse them. The gradient is finite and"
            " belongs to other values.",
            step=one.step,
            op=one.writer,
            node=one.node,
            location=one.location,
            label="written after it was saved",
            related=places(("use", one.call.location, f"`{op}` saved it here")),
            evidence={"saved_by": one.call.op},
            symptoms=symptoms(Trouble.WRONG, Subject.GRADIENT, one.step, [op]),
            fixes=(ask.CopyBeforeWriting(),),
        )

    def _about_kept(self, one: Overwrite, place: Location, op: str, writer: str) -> Finding:
        return self.found(
            f"`{op}` keeps `{one.kept}` for its backward, and `{writer}` writes into it before that"
            " runs",
            f"Its backward reads `ctx.{one.kept}` as it is by then, and not as the forward left it:"
            " the memory is written anew by a later call. Autograd counts the versions of what"
            " `save_for_backward` is given, and of nothing else. The gradient is finite and belongs"
            " to other values.",
            step=one.step,
            op=op,
            node=one.node,
            location=place,
            label="keeps the memory, and no copy",
            related=places(
                ("use", one.location, f"`{writer}` writes into it"),
                ("call", one.call.location, "called here"),
            ),
            evidence={"saved_by": one.call.op, "kept": one.kept},
            symptoms=symptoms(Trouble.WRONG, Subject.GRADIENT, one.step, [op]),
            fixes=(ask.CopyWhenKept(one.kept),),
        )
