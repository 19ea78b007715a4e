"""Operands of several dtypes, where an op takes one."""

from collections.abc import Iterator

from gradscope.facts import Finding, Raised, Root, Trace
from gradscope.facts import MixedDtypes as Mixed
from gradscope.facts import requests as ask
from gradscope.rules import fixes
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class MixedDtypes(Rule):
    """
    ## What it does
    Finds the operand whose dtype is not that of what is trained, where an op refuses operands of
    several dtypes with an exception.

    ## Why is this bad?
    NumPy computes in float64, and whole numbers come from counting and comparing. Sums and products
    convert them, matrix products, convolutions and losses do not, and say only that two dtypes
    differ.

    ## Example
    ```python
    import torch

    table = torch.rand(8, 4, dtype=torch.float64)
    model = torch.nn.Linear(4, 1)
    - model(table).square().mean().backward()
    + model(table.float()).square().mean().backward()
    ```

    ## Fix safety
    Unsafe: what could not run will, and float64 data loses digits that float32 has not.
    """

    code = "GS305"
    name = "mixed-dtypes"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        if trace.raised is not None and isinstance(trace.raised.why, Mixed) and not roots:
            yield self._about(trace.raised, trace.raised.why)

    def _about(self, raised: Raised, why: Mixed) -> Finding:
        given = next((one for one in raised.operands if one.role == why.role), None)
        what = phrases.name(given, f"`{fixes.called(why.role)}`")
        op = phrases.spelled(raised.call.op)
        return self.found(
            f"`{op}` was given {what} in {why.dtype}, and what is trained is {why.wanted}",
            f"`{op}` takes operands of one dtype. With {what} in {why.wanted} it runs: that was"
            " tried on these operands.",
            raised.call,
            step=raised.step,
            label=f"reads {why.dtype} here",
            evidence=measurements.fields_of(why, "role", "dtype", "wanted"),
            tensors=raised.operands,
            numbers=(f"{why.dtype} beside {why.wanted}",),
            fixes=(ask.CastOperand(why.role, why.wanted, given.name if given else None),),
        )
