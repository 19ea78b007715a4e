"""A NaN that no gradient depends on, and that the program reads or keeps."""

from collections.abc import Iterator

from gradscope.facts import Event, Finding, Fix, Kind, NanRead, Root, Severity, Trace, plural
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases

_FILLED = Fix(
    "data",
    "give it a value where it is not defined, or leave it out of what is averaged and compared",
    code="torch.nan_to_num(value, nan=0.0)",
)
_SOMETHING = Fix(
    "data",
    "see that there is something to evaluate (batches, elements that a mask leaves), or report that"
    " there is not",
    code="value = scores.mean() if scores.numel() else None",
)


class NanMetric(Rule):
    """
    ## What it does
    Finds a NaN that the program computes without a gradient and then reads: a validation loss, an
    accuracy, a norm that is logged; or that it keeps without a look: in a history, a running total.
    Not reported are places that read finite numbers as well, unless a sum of them has become NaN; a
    NaN that the program wrote itself, asked about or replaced; and scores that are not defined (a
    precision of 0 / 0, the spread of one item). The mean of nothing is reported where it is all
    that is ever read: nothing was evaluated.

    ## Why is this bad?
    Training looks healthy. What is logged is NaN, and a comparison with NaN is always False: the
    best checkpoint is never saved again and early stopping never stops.

    ## Example
    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    w.square().sum().backward()
    with torch.no_grad():
    -     score = (w - 2).sqrt().mean()
    +     score = (w - 2).clamp_min(0).sqrt().mean()
    print(f"validation {score.item():.3f}")
    ```

    ## Fix safety
    There is no patch: what the metric is to be where it is not defined is a choice.
    """

    code = "GS504"
    name = "nan-metric"
    severity = Severity.WARNING

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        if trace.symptoms:
            return  # what is evaluated is broken by what broke in training
        for read in trace.nan_reads:
            has_data_at_times = _is_empty(read.event) and read.finite_before
            if not has_data_at_times and not _is_undefined(read.event):
                yield self._about(read)

    def _about(self, read: NanRead) -> Finding:
        event, is_birth = read.event, read.event.kind is Kind.BIRTH
        is_empty, op = _is_empty(event), phrases.spelled(event.op)
        gives = phrases.outcome(event.output) if is_birth else "NaN"
        made = "" if evidence.gives_nan(event) else f"that comes of the {gives} "
        comes = f"{made}that `{op}` gives" if is_birth else f"that comes in with `{op}`"
        comes = f"{comes} of nothing" if is_empty else f"{comes} at {phrases.bad_of(event)}"
        what, use, numbers = _use_of(read)
        return self.about_event(
            event,
            f"the NaN {comes} {what}; no gradient depends on it",
            ("There is nothing in its operand to evaluate. " if is_empty else "")
            + f"Training does not notice it. What is {use} is NaN, and every comparison with it is"
            " False: no later result counts as better or worse.",
            label=f"{gives} here" if is_birth else "NaN comes in here",
            related=places(("use", read.location if read.times else None, "read here")),
            facts={"times": read.times},
            numbers=numbers,
            fixes=(_SOMETHING if is_empty else _FILLED,),
        )


def _use_of(read: NanRead) -> tuple[str, str, tuple[str, ...]]:
    """What became of the NaN, what is NaN now, and the numbers."""
    times = f"read {plural(read.times, 'time')} in the last step that reads it"
    if not read.held_as:
        return "is read out", "printed and logged here", (f"{times}, NaN each time",)
    if not read.times:
        return f"is kept in `{read.held_as}`", f"made of `{read.held_as}`", ()
    return f"is read out, and `{read.held_as}` is NaN since", f"made of `{read.held_as}`", ()


def _is_empty(event: Event) -> bool:
    """Whether it is what a reduction gives of no element at all."""
    operand = event.operand("self")
    return event.kind is Kind.BIRTH and operand is not None and operand.numel == 0


def _is_undefined(event: Event) -> bool:
    """Whether the score is not defined for want of data, and NaN is how torch says so."""
    operand, values = event.operand("self"), event.values()
    if has(event.op, Trait.DIVIDES):
        return values.get("self") == 0.0 and values.get("other") == 0.0
    if operand is None or event.output is None:
        return False
    items = operand.numel // max(event.output.numel, 1)
    return operand.numel > 0 and has(event.op, Trait.SPREADS) and items <= 1
