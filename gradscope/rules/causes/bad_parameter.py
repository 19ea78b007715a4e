"""GS502."""

from __future__ import annotations

from gradscope.facts import Call, Event, Finding, Fix, Kind, Root, Trace
from gradscope.rules.reading import evidence
from gradscope.rules.reading.evidence import Situation
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class BadParameter(Rule):
    """
    ## What it does
    Finds NaN or inf that was in a parameter or a buffer before the step began.

    ## Why is this bad?
    A checkpoint of a run that had already broken loads without complaint, and so does a bad
    initialisation. Every output that the parameter touches is NaN from the first step on.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1)
    state = {"weight": torch.full((1, 3), float("nan")), "bias": torch.zeros(1)}
    layer.load_state_dict(state)
    layer(torch.ones(2, 3)).sum().backward()
    ```

    ## Use instead
    ```python
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1)
    state = {"weight": torch.full((1, 3), float("nan")), "bias": torch.zeros(1)}
    if all(value.isfinite().all() for value in state.values()):
        layer.load_state_dict(state)
    layer(torch.ones(2, 3)).sum().backward()
    ```

    ## Fix safety
    Unsafe: the bad values carry no information; they come back only from another checkpoint or
    from training again.
    """

    code = "GS502"
    name = "bad-parameter"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if event.kind is not Kind.SOURCE or evidence.situation(root) is not Situation.OUTSIDE:
            return None
        kin = evidence.held_by(event)
        if kin not in ("parameter", "buffer"):
            return None
        one = evidence.outside(event)
        what = phrases.bad_word(one.nan, one.posinf + one.neginf) if one else "NaN"
        holder = f"{kin} {phrases.name(one, 'without a name')}"
        return self.finding(
            root,
            trace,
            blame=evidence.reader(root),
            message=f"{holder} holds {what} at {phrases.of_total(event.bad, event.numel)}",
            label=f"first read here, {what} already",
            why=_mechanism(event, holder, evidence.reader(root)),
            fixes=_repairs(holder),
        )


def _mechanism(event: Event, holder: str, reader: Call) -> str:
    when = "before the first step" if event.step == 0 else f"before step {event.step} read it"
    return (
        f"The {holder} was bad {when}: the values came from a checkpoint, an initialisation or a"
        f" write outside of training. `{phrases.spelled(reader.op)}` is the first op that reads"
        " them, and is not at fault."
    )


def _repairs(holder: str) -> tuple[Fix, ...]:
    check = "assert all(v.isfinite().all() for v in state.values() if v.is_floating_point())"
    return (
        Fix("data", f"load a checkpoint in which the {holder} is finite", "unsafe", check),
        Fix("init", f"initialise the {holder} again", "unsafe", "layer.reset_parameters()"),
    )
