"""Weights whose units are all the same, and stay so, and modules that are one."""

from collections.abc import Iterator

from gradscope.facts import Finding, Identical, Phase, Repeated, Root, Severity, Trace
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule


class IdenticalUnits(Rule):
    """
    ## What it does
    Finds a weight whose units are all the same, get the same gradient, and are still the same
    after an update: as of a layer that was filled with one number. Or one module that stands
    several times in a container, and gets the same input each time.

    ## Why is this bad?
    Nothing ever tells the units apart. However wide the layer is, and however long it trains, it
    computes one number, many times. `[Head()] * 4` makes one head, and lists it four times: all
    four give the same result, and one set of weights learns what was meant for four.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    body, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    model = torch.nn.Sequential(body, torch.nn.Tanh(), head)
    for layer in (body, head):
    -    torch.nn.init.constant_(layer.weight, 0.1)
    +    torch.nn.init.xavier_normal_(layer.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
    ```

    ## Fix safety
    Unsafe: training starts from other weights. A warning where a module that stands several times
    in a container has Dropout, which makes several results of one.
    """

    code = "GS416"
    name = "identical-units"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for one in sorted(trace.identical, key=lambda one: one.of_inputs)[:1] if not roots else ():
            yield self._about(one)
        yield from map(self._about_repeated, trace.repeated if not roots else ())

    def _about(self, one: Identical) -> Finding:
        whose = "units that `{}` reads" if one.of_inputs else "units of `{}`"
        return self.found(
            f"the {one.units} {whose.format(one.name)} are the same, and stay the same",
            "They started from the same numbers, and each gets the same gradient. However many they"
            " are, they compute one number. To learn different things, units have to start from"
            " different weights.",
            one.call,
            phase=Phase.BACKWARD,
            step=one.step,
            label=f"{one.units} times the same unit",
            evidence={"units": one.units},
            fixes=(ask.DrawWeights(one.name),),
        )

    def _about_repeated(self, one: Repeated) -> Finding:
        same = "" if one.draws else "each place gives the same result, and "
        return self.found(
            f"`{one.container}` holds one `{one.kind}` {one.times} times, and it gets the same"
            " input each time",
            "To list a module again, as `[x] * n` does, is not to copy it. So"
            f" {same}what the places are to learn apart goes into one set of weights.",
            severity=Severity.WARNING if one.draws else Severity.ERROR,
            step=one.step,
            op=one.container,
            location=one.made,
            label=f"{one.times} times the same module",
            evidence={"times": one.times, "parameters": one.parameters},
            fixes=(ask.MakeEach(),),
        )
