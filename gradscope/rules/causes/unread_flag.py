"""`requires_grad` that is set where torch does not read it."""

from collections.abc import Iterator

from gradscope.facts import (
    Finding,
    Phase,
    Root,
    Severity,
    Subject,
    Trace,
    Trouble,
    UnreadFlag,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule, symptoms
from gradscope.rules.wording import phrases


class UnreadFlags(Rule):
    """
    ## What it does
    Finds `requires_grad` that is set as an attribute of a module, or misspelt of a parameter
    (`require_grad`), where the parameters have the other value.

    ## Why is this bad?
    Python takes any attribute, and nothing reads this one. What was to be frozen is trained, and
    what was to be trained again stays frozen.

    ## Example
    ```python
    import torch

    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    - body.requires_grad = False
    + body.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        head(body(torch.randn(8, 4))).square().mean().backward()
        optimizer.step()
    ```

    ## Fix safety
    Unsafe: other parameters are trained than before.
    """

    code = "GS414"
    name = "unread-flag"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        step = trace.steps[-1].index if trace.steps else 0
        for flag in trace.magnitudes.unread_flags:
            yield self._about(flag, step)

    def _about(self, flag: UnreadFlag, step: int) -> Finding:
        kind = "module" if flag.of_module else "parameter"
        count, holds = plural(len(flag.held), kind), "trained" if flag.value else "frozen"
        is_lost = flag.value and flag.trained
        still = flag.held if is_lost and not flag.of_module else ()
        whose = "those in it have" if flag.of_module else "theirs has"
        return self.found(
            f"`{flag.attribute} = {flag.value}` of {count} changes nothing:"
            f" {phrases.listed(flag.held)}",
            "Python takes any attribute, and torch reads `requires_grad` of parameters alone:"
            f" {whose} the other value. What was to be {holds} is not.",
            severity=Severity.ERROR if is_lost else Severity.WARNING,
            step=step,
            op="requires_grad",
            location=flag.location,
            label="nothing reads this",
            symptoms=symptoms(Trouble.UNCHANGED, Subject.PARAMETER, step, still),
            fixes=(ask.SetFlag(flag.attribute, flag.of_module),),
        )
