"""Targets that what they are compared with can never be."""

import math
from collections.abc import Iterator

from gradscope.facts import Finding, Fix, NoGradient, Root, Severity, Trace, Unreached, percent
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases

_WHITE = 255.0
_FLAT = (NoGradient.DEAD_RELU, NoGradient.SATURATED)


class UnreachedTarget(Rule):
    """
    ## What it does
    Finds an error, as of `mse_loss`, whose targets lie beyond the bounds of what it compares them
    with: of a `relu`, a `sigmoid` or a `tanh` at the end of a model. Also targets of
    `binary_cross_entropy_with_logits` that are no probabilities, as a mask of 0 and 255.

    ## Why is this bad?
    The loss stays above what is left there, however good the model is. The closer it comes to its
    bound, the smaller the slope, and where a `relu` gives 0 there is none: nothing is learnt then.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    x = torch.randn(32, 4)
    target = x.sum(1, keepdim=True) - 1
    - torch.nn.functional.mse_loss(torch.relu(model(x)), target).backward()
    + torch.nn.functional.mse_loss(model(x), target).backward()
    ```

    ## Fix safety
    Unsafe: the model gives other values. Targets that are scaled into the bounds are as good.
    """

    code = "GS415"
    name = "unreached-target"
    severity = Severity.WARNING

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        flat = any(one.reason in _FLAT for one in (*magnitudes.absences, *magnitudes.died))
        for one in trace.unreached if not roots else ():
            if one.made == one.taken:
                yield self._about_chances(one)
            else:
                yield self._about(one, Severity.ERROR if flat else self.severity)

    def _about_chances(self, one: Unreached) -> Finding:
        low, high = map(phrases.number, one.found)
        taken = phrases.spelled(one.taken.op)
        # Labels, or a scale that is known: the grey levels of an image.
        known = one.labels or (one.found[0] >= 0 and one.found[1] == _WHITE)
        ends = one.found if one.labels else (0.0, _WHITE)
        scaled = Fix("data", "scale the targets to be between 0 and 1", "unsafe")
        return self.found(
            f"{percent(one.share, 1.0)} of the targets are no probabilities: they range from {low}"
            f" to {high}",
            f"`{taken}` is least where the sigmoid of a logit is its target, which lies between 0"
            " and 1. Beyond that there is no such logit: the loss falls without end as it grows,"
            " below 0 as well, and what belongs to no class has less and less to say.",
            one.taken,
            severity=Severity.ERROR,
            step=one.step,
            label=f"is given targets from {low} to {high}",
            evidence={"share": one.share, "low": one.found[0], "high": one.found[1]},
            fixes=(ask.ScaleTarget(*ends) if known else scaled,),
        )

    def _about(self, one: Unreached, severity: Severity) -> Finding:
        made, taken = phrases.spelled(one.made.op), phrases.spelled(one.taken.op)
        low, high = phrases.number(one.low), phrases.number(one.high)
        bounds = f"at least {low}" if math.isinf(one.high) else f"between {low} and {high}"
        at = one.taken.location
        request = ask.GiveScores(made, at, logarithms=False)
        scaled = Fix("data", "scale the targets into these bounds", "display-only")
        return self.found(
            f"{percent(one.share, 1.0)} of the targets cannot be reached: `{made}` gives values"
            f" {bounds}",
            f"`{taken}` compares each target with what `{made}` gives. What lies beyond its bounds"
            " adds an error that no weights can take away, and pulls the model to where it has no"
            " slope.",
            one.made,
            severity=severity,
            step=one.step,
            label=f"is {bounds}",
            related=places(("use", at, "compares it with the targets")),
            evidence={"share": one.share, "low": one.low, "high": one.high},
            fixes=(request, scaled) if one.alone else (scaled,),
        )
