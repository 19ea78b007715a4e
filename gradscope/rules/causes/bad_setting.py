"""An optimizer with a setting that is inf or NaN."""

from gradscope.facts import Finding, Fix, Phase, Root, Trace, text_of
from gradscope.rules.rule import Rule


class BadSetting(Rule):
    """
    ## What it does
    Finds an optimizer that has broken the parameters because a setting of its own is inf or NaN:
    the learning rate, the weight decay, the momentum, a beta.

    ## Why is this bad?
    With a learning rate of inf or NaN the step makes every parameter inf or NaN. The loss and the
    gradients before it are in order, so looking for the fault there finds nothing.

    ## Example
    ```python
    import torch

    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(3):
    -     optimizer.param_groups[0]["lr"] = float("inf") if step == 2 else 0.1
    +     optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()
    ```

    ## Fix safety
    Display-only: which number was meant is for you to say.
    """

    code = "GS408"
    name = "bad-setting"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        bad = [one for one in trace.settings if one.step == root.event.step]
        if not bad or root.event.phase is not Phase.OPTIMIZER:
            return None
        first = bad[0]
        settings = " and ".join(f"{one.name} = {text_of(one.value)}" for one in bad)
        names = " and ".join(f"`{one.name}`" for one in bad)
        return self.finding(
            root,
            trace,
            message=f"`{first.optimizer}` steps with {settings}",
            label=f"steps with {settings}",
            why=f"The step moves each parameter by what it computes from {names}, so the parameters"
            " are not finite after it. Neither the loss nor a gradient is at fault.",
            facts={"optimizer": first.optimizer, "settings": {one.name: one.value for one in bad}},
            fixes=(Fix("lower-lr", f"keep {names} finite, also where a schedule sets a value"),),
        )
