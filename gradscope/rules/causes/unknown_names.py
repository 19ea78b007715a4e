"""Tensors that `functional_call` is given by names that the module does not have."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gradscope.facts import Finding, Fix, Location, Phase, Root, Severity, Trace, UnknownNames
from gradscope.facts import requests as ask
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases

_RUNS = "runs with its own parameters"
_ITS_NAMES = "give it the names that `named_parameters()` of the module that is called has"


class UnknownName(Rule):
    """
    ## What it does
    Finds names that `torch.func.functional_call` is given, and that the module does not have, while
    its own parameters stay in use. Mostly they are those of a part of it.

    ## Why is this bad?
    torch sets them as attributes that nobody reads, and does not say so. The module runs with its
    own parameters: what an inner loop has adapted has no effect, and autograd finds no way to it.

    ## Example
    ```python
    import torch
    from torch.func import functional_call

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    - fast = dict(model[1].named_parameters())
    + fast = dict(model[1].named_parameters(prefix="1"))
    fast = {name: 0.9 * p for name, p in fast.items()}
    y = functional_call(model, fast, (torch.randn(8, 4),))
    y.square().mean().backward()
    ```

    ## Fix safety
    Unsafe: the module computes with other parameters. A warning where some of the names are its
    own, and nothing tells what the others are names of. `strict=True` has torch raise.
    """

    code = "GS418"
    name = "unknown-names"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        calls = defaultdict[Location | None, list[UnknownNames]](list)
        for one in trace.unknown_names:
            calls[one.made_at or one.location].append(one)
        for place, found in calls.items():
            yield self._about(place, found, trace)

    def _about(
        self, place: Location | None, calls: Sequence[UnknownNames], trace: Trace
    ) -> Finding:
        one, refusal = calls[0], trace.refusal
        own = tuple(f"{one.prefix}.{name}" for name in one.names) if one.prefix else one.left
        runs = places(*(("use", call.location, _RUNS) for call in calls if call.made_at))
        return self.found(
            f"`functional_call` gives `{one.model}` names that it does not have:"
            f" {phrases.listed(one.names)}",
            "torch takes any name, and puts the tensor where nobody reads it. The module runs with"
            f" its own {phrases.listed(own)}, and what it is given has no effect.",
            severity=Severity.ERROR if one.is_sure else Severity.WARNING,
            phase=Phase.FORWARD if refusal is None else Phase.BACKWARD,
            step=max(call.step for call in calls) if refusal is None else refusal.step,
            op="functional_call",
            location=place,
            label="gives other names" if one.made_at else _RUNS,
            related=runs,
            evidence=measurements.fields_of(one, "names", "given", "prefix"),
            fixes=(
                ask.PrefixNames(one.prefix, one.names)
                if one.prefix
                else Fix("graph", _ITS_NAMES, "unsafe"),
            ),
        )
