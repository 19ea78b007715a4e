"""A state that is loaded to bring weights back, and refers to them as they are."""

from collections.abc import Iterator

from gradscope.facts import Finding, Phase, Reload, Root, Severity, Trace, plural
from gradscope.facts import requests as ask
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule, places


class AliasedState(Rule):
    """
    ## What it does
    Finds a `state_dict()` that is kept while training goes on, and is loaded into the same module
    later. Or a module that is given its own state again and again, as where a target network is to
    follow the one that is trained.

    ## Why is this bad?
    `state_dict()` gives references to the parameters, and no copies. Each step changes what was
    kept along with them: loading it copies every parameter onto itself. The best weights of a run
    that were to be kept so are lost, and it goes on with the last ones.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    - best = model.state_dict()
    + best = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    model.load_state_dict(best)
    ```

    ## Fix safety
    Unsafe: the program goes on with the weights that it meant to keep.
    """

    code = "GS413"
    name = "aliased-state"
    phase = Phase.OPTIMIZER
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for one in trace.magnitudes.reloads:
            yield self._about(one) if one.passes else self._of_itself(one)

    def _about(self, reload: Reload) -> Finding:
        parameters = plural(reload.parameters, "parameter")
        passes = plural(reload.passes, "pass", "passes")
        place, loads = reload.taken_at or reload.loaded_at, reload.loaded_at
        use = places(("use", loads, "copies them onto themselves"))
        return self.found(
            f"loading the kept state of `{reload.model}` changes nothing: it is no copy",
            f"`state_dict()` gives references to the {parameters}. Training has changed what was"
            f" kept along with them, in the {passes} since: there is nothing to go back to.",
            severity=Severity.WARNING,
            step=reload.step,
            op="load_state_dict",
            location=place,
            label="refers to the parameters",
            related=use if loads != place else (),
            evidence=measurements.fields_of(reload, "parameters", "passes"),
            fixes=(ask.CopyState(),),
        )

    def _of_itself(self, reload: Reload) -> Finding:
        parameters, meant = plural(reload.parameters, "parameter"), reload.meant
        where = f" It is `{meant}`, with such parameters, that is trained." if meant else ""
        return self.found(
            f"`{reload.model}` is given its own state: loading it changes nothing",
            f"The line takes the state of the module that it loads it into, each time that it runs:"
            f" the {parameters} are copied onto themselves.{where}",
            severity=Severity.ERROR if meant else Severity.WARNING,
            step=reload.step,
            op="load_state_dict",
            location=reload.loaded_at,
            label="its own state",
            evidence=measurements.fields_of(reload, "parameters"),
            fixes=(ask.LoadStateOf(meant),) if meant else (),
        )
