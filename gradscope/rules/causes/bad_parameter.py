"""NaN or inf that was in a parameter or a buffer before the step."""

from gradscope.facts import Event, Finding, Fix, Kind, Location, Root, Trace
from gradscope.facts import requests as ask
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class BadParameter(Rule):
    """
    ## What it does
    Finds NaN or inf that was in a parameter or a buffer before the step began.

    ## Why is this bad?
    A checkpoint of a run that had already broken loads without complaint. Every output that the
    parameter touches is NaN from the first step on.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1)
    state = {"weight": torch.full((1, 3), float("nan")), "bias": torch.zeros(1)}
    - layer.load_state_dict(state)
    + if all(value.isfinite().all() for value in state.values()):
    +     layer.load_state_dict(state)
    layer(torch.ones(2, 3)).sum().backward()
    ```

    ## Fix safety
    Unsafe: the bad values carry no information; they come back only from another checkpoint or
    from training again.
    """

    code = "GS502"
    name = "bad-parameter"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event, one = root.event, evidence.outside(root.event)
        is_outside = evidence.situation(root) is evidence.Situation.OUTSIDE
        if event.kind is not Kind.SOURCE or not is_outside:
            return None
        if one is None or one.held_as not in ("parameter", "buffer"):
            return None
        what = phrases.bad_word(one.nan, one.posinf + one.neginf)
        holder = f"{one.held_as} {phrases.name(one, 'without a name')}"
        reader = evidence.reader(root)
        when = "before the first step" if event.step == 0 else f"before step {event.step} read it"
        check = "assert all(v.isfinite().all() for v in state.values() if v.is_floating_point())"
        written = _written_at(event, trace)
        at = written[0] if written else None
        came = "the values came from a checkpoint, an initialisation or a write outside of training"
        fixes: tuple[Fix, ...] = (
            Fix("data", f"load a checkpoint in which the {holder} is finite", "unsafe", check),
            Fix("init", f"initialise the {holder} again", "unsafe", "layer.reset_parameters()"),
        )
        if at is not None:
            came = f"the program writes {what} into it (line {at.line})"
            title = f"start the {holder} with finite numbers"
            fixes = (Fix("init", title, "unsafe", "-1e4", request=ask.FiniteStart(written)),)
        return self.finding(
            root,
            trace,
            blame=reader,
            message=f"{holder} holds {what} at {phrases.bad_of(event)}",
            label=f"first read here, {what} already",
            why=f"The {holder} was bad {when}: {came}. `{phrases.spelled(reader.op)}` is the first"
            " op that reads them, and is not at fault.",
            related=places(("birth", at, f"writes the {what}")),
            fixes=fixes,
        )


def _written_at(event: Event, trace: Trace) -> tuple[Location, ...]:
    """Where the program puts a constant of its own, that is inf, into the tensor, the last write
    first; empty where the values came from elsewhere."""
    past = [one for id in event.sources if (one := trace.event(id)) is not None]
    for one in past:
        sources = [above for id in one.sources if (above := trace.event(id)) is not None]
        if not sources and one.kind is not Kind.CONSTANT:
            return ()
        past += [above for above in sources if above not in past]
    return tuple(dict.fromkeys(one.blame.location for one in past if one.blame.location))
