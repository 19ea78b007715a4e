"""NaN or inf that was in the data."""

from dataclasses import replace

from gradscope.facts import (
    ArrayFault,
    Call,
    Event,
    Finding,
    Fix,
    Kind,
    Phase,
    Related,
    Root,
    Sample,
    Trace,
    Trouble,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases, proposals


class BadInput(Rule):
    """
    ## What it does
    Finds NaN or inf that was in the data before the first op ran on it.

    ## Why is this bad?
    No op of the program is at fault: one missing value in one sample makes the loss of the whole
    batch NaN, and through the gradient every parameter.

    ## Example
    ```python
    import torch

    batch = torch.tensor([[1.0, 2.0], [float("nan"), 3.0]])
    + batch = batch[batch.isfinite().all(-1)]
    weight = torch.ones(2, requires_grad=True)
    loss = (batch @ weight).square().mean()
    loss.backward()
    ```

    ## Fix safety
    Unsafe: whether to drop, to fill or to repair a sample is a question about the data.
    """

    code = "GS501"
    name = "bad-input"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        given = evidence.literal(root, trace)
        if given is not None and evidence.situation(root) is not evidence.Situation.HIDDEN:
            chain = root.chain if given is root.event else (given, *root.chain)
            root = replace(root, event=given, chain=chain)
        elif evidence.situation(root) is not evidence.Situation.OUTSIDE:
            return None
        event, one = root.event, evidence.outside(root.event)
        if event.kind is Kind.UNINITIALIZED:
            return None
        if one is not None and one.held_as in ("parameter", "buffer"):
            return None
        reader, what = evidence.reader(root), _what(event)
        found = self.finding(
            root,
            trace,
            blame=reader,
            step=evidence.first_use(root).step,  # a worker may have brought it in a step before
            phase=Phase.DATA,
            message=_headline(event, reader, what),
            label=f"{what} comes in here",
            why=_mechanism(event, reader),
            fixes=(_repair(event, reader),),
        )
        if event.sample is not None:
            return _of_a_sample(found, event.sample, event, reader)
        trouble = Trouble.INF if what == "inf" else Trouble.NAN
        fault = next((each for each in trace.array_faults if each.trouble is trouble), None)
        return _of_an_array(found, fault, reader) if fault is not None else found


def _of_a_sample(found: Finding, sample: Sample, event: Event, reader: Call) -> Finding:
    """What a worker brought: told at the dataset's line, where that is known."""
    which = "a sample" if sample.index is None else f"sample {sample.index}"
    by = "a worker" if sample.worker < 0 else f"worker {sample.worker}"
    found = replace(
        found,
        message=f"{which} of the dataset holds {_what(event)}; {by} of the DataLoader made it",
        evidence={**found.evidence, "sample": sample.index, "worker": sample.worker},
    )
    if sample.location is None:
        return found
    op = phrases.spelled(sample.op)
    title = f"keep the operand of `{op}` where it is defined, or drop such samples here"
    return replace(
        found,
        op=sample.op,
        location=sample.location,
        label=f"`{op}` gives {_what(event)} for {which}",
        related=_met(found, reader),
        why=f"Made again in the main process, {which} turns bad at `{op}`. {found.why}",
        fixes=(Fix("data", title, "unsafe"),),
    )


def _of_an_array(found: Finding, fault: ArrayFault, reader: Call) -> Finding:
    """What NumPy had made, and warned of, before it became a tensor."""
    what = "NaN" if fault.trouble is Trouble.NAN else "inf"
    fixes = found.fixes
    if fault.op in ("divide", "true_divide"):
        fixes = (proposals.proposed(ask.DivideArrayByOne()), *fixes)
    return replace(
        found,
        op=fault.op,
        location=fault.location,
        label=f"NumPy warned: {what} of finite numbers",
        related=_met(found, reader),
        why=f"`{fault.op}` of NumPy has made {what} of finite elements here. {found.why}",
        fixes=fixes,
    )


def _met(found: Finding, reader: Call) -> tuple[Related, ...]:
    """Where the program read it, of what is told at another place."""
    return places(("use", reader.location, found.label))


def _what(event: Event) -> str:
    one = evidence.outside(event)
    return phrases.bad_word(one.nan, event.bad - one.nan) if one else "NaN"


def _headline(event: Event, reader: Call, what: str) -> str:
    at = phrases.line(event.blame, reader)
    if event.op == "lift_fresh" and event.numel == 1:
        return f"1 {what} written as a number{at} reaches `{phrases.spelled(reader.op)}`"
    name = phrases.name(evidence.outside(event), f"the input{at}")
    return f"{name} holds {what} at {phrases.bad_of(event)}"


def _mechanism(event: Event, reader: Call) -> str:
    rows = ""
    known = evidence.is_known(event)
    if not known and event.row_count and event.output is not None and len(event.output.shape) > 1:
        shown = ", ".join(map(str, event.rows))
        more = ", ..." if event.row_count > len(event.rows) else ""
        rows = f" They lie in {plural(event.row_count, 'sample')} ({shown}{more})."
    at = f", in the batch at {phrases.place(event.index)}" if known else ""
    first = at or (f", {phrases.place(event.index)} first" if event.index else "")
    return (
        f"The values were bad before any op of the program touched them{first}.{rows}"
        f" `{phrases.spelled(reader.op)}` is the first op that computes with them, and is not at"
        " fault."
    )


def _repair(event: Event, reader: Call) -> Fix:
    one = evidence.outside(event)
    if one is None or not one.name:
        at = phrases.line(event.blame, reader)
        title = f"clean or drop the bad samples where they are loaded{at}"
        code = "keep = batch.isfinite().flatten(1).all(1)"
        return Fix("data", title, "unsafe", code, request=ask.CleanByMask())
    title = f"clean or drop the bad elements of `{one.name}` where it is loaded"
    code = f"torch.nan_to_num({one.name}, nan=0.0, posinf=0.0, neginf=0.0)"
    return Fix("data", title, "unsafe", code, request=ask.CleanByMask())
