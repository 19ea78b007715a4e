"""An average over nothing, or a spread over one item."""

from collections.abc import Iterator

from gradscope.facts import (
    Event,
    Finding,
    Fix,
    Lone,
    Nothing,
    Operand,
    Raised,
    Root,
    SingleItem,
    Trace,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class EmptyReduction(Rule):
    """
    ## What it does
    Finds an average over nothing, or a spread over one item: `mean` of an empty selection,
    `cross_entropy` with every target ignored, `std` of a batch of one, the batch of one that
    BatchNorm refuses, a normalisation of each value by itself, and the empty selection, or list,
    that `min` and `stack` refuse.

    ## Why is this bad?
    The sum of nothing is 0 and its count is 0, so the mean is 0 / 0 = NaN; the unbiased `std` of
    one item divides by n - 1 = 0. It happens on the odd batch: the last one of an epoch, a crop
    without foreground, a sequence of padding.

    ## Example
    ```python
    import torch

    x = torch.tensor([0.5, 2.0], requires_grad=True)
    - loss = x[x > 10].mean()
    + kept = x[x > 10]
    + loss = kept.sum() / max(kept.numel(), 1)
    loss.backward()
    ```

    ## Fix safety
    Unsafe: the average over nothing becomes 0, with gradient 0. Averages over something keep
    their value.
    """

    code = "GS207"
    name = "empty-reduction"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from super().check(trace, roots)
        yield from map(self._of_one, trace.lone)
        match trace.raised:
            case Raised(why=SingleItem() as why):
                yield self._refused(trace.raised, why)
            case Raised(why=Nothing() as why):
                yield self._of_nothing(trace.raised, why)

    def _of_one(self, lone: Lone) -> Finding:
        op, shape = phrases.spelled(lone.call.op), list(lone.shape)
        return self.found(
            f"`{op}` normalises each value by itself: its result of shape {shape} is the same for"
            " every input",
            "Less its own mean a value is 0, whatever it is, and the slope is 0 as well, but for"
            " rounding. What comes before learns nothing from here.",
            lone.call,
            step=lone.step,
            label="normalises single values",
            evidence={"shape": shape},
            fixes=(
                Fix(
                    "graph",
                    "normalise several values together: in fewer groups, or along another"
                    " dimension",
                    "unsafe",
                    "nn.GroupNorm(1, channels)",
                ),
            ),
        )

    def _refused(self, raised: Raised, why: SingleItem) -> Finding:
        """By a normalisation, which counts its items first."""
        (given,) = raised.operands
        op, count = phrases.spelled(raised.call.op), f"{why.shape[0]:,}"
        instead: Fix | ask.Request = ask.DropLastBatch()
        if not why.recorded:
            instead = Fix("graph", "evaluate in eval mode", "unsafe", "model.eval()")
        return self.found(
            f"`{op}` over one value for each channel: {phrases.name(given, 'its input')} has shape"
            f" {list(why.shape)}",
            f"In training `{op}` divides by the spread of each channel over the batch, and one"
            f" value has none. Such a batch of {count} is often the last of an epoch, with what the"
            " others have left over; or a single sample that is only to be evaluated.",
            raised.call,
            step=raised.step,
            label="takes more than one value for each channel",
            evidence={"shape": list(why.shape)},
            tensors=raised.operands,
            fixes=(
                instead,
                Fix("graph", "normalise within a sample", "unsafe", "nn.LayerNorm, nn.GroupNorm"),
            ),
        )

    def _of_nothing(self, raised: Raised, why: Nothing) -> Finding:
        op = phrases.spelled(raised.call.op)
        given = next((one for one in raised.operands if one.role == why.role), None)
        what, does, instead = "a list without a tensor", "joins tensors", "nothing to join"
        if given is not None:
            what = f"{phrases.name(given, 'its operand')} has shape {list(given.shape)}"
            does, instead = "gives one of the elements that are there", "nothing to choose from"
        return self.found(
            f"`{op}` of nothing: {what}",
            f"`{op}` {does}, and there is none: torch raises. Nothing was selected, or nothing was"
            " added, at this step.",
            raised.call,
            step=raised.step,
            label=instead,
            evidence={"shape": list(given.shape)} if given is not None else {},
            tensors=raised.operands,
            fixes=(ask.LeaveOutNothing(given is None, why.graph),),
        )

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if not evidence.breaks_in_use(root):
            return None
        if self.edge_at(root) is None and not _reduces_nothing(event):
            return None
        message, label, why = _words(event)
        return self.finding(
            root,
            trace,
            message=message,
            label=label,
            why=why,
            fixes=(_repair(event),),
            facts={"reduced": _reduced(event)},
        )


def _reduces_nothing(event: Event) -> bool:
    if not evidence.gives_nan(event) or not evidence.is_fed_finite(event):
        return False
    operand = _operand(event)
    return has(event.op, Trait.AVERAGES) or (operand is not None and operand.numel == 0)


def _operand(event: Event) -> Operand | None:
    return event.operand("self") or next(iter(event.operands), None)


def _reduced(event: Event) -> int:
    """How many items went into each result."""
    operand = _operand(event)
    results = event.output.numel if event.output else 0
    return operand.numel // results if operand is not None and results else 0


def _has_targets(event: Event) -> bool:
    return "loss" in event.op or "entropy" in event.op  # aten calls all of them so, and no others


def _words(event: Event) -> tuple[str, str, str]:
    """The headline, the label and the mechanism."""
    op, count = phrases.spelled(event.op), phrases.of_total(event.bad, event.numel, "result")
    operand, items = _operand(event), plural(_reduced(event), "item")
    shape = list(operand.shape) if operand is not None else []
    text = f"{phrases.name(operand, 'The operand')} has shape {shape}"
    if has(event.op, Trait.SPREADS):
        return (
            f"`{op}` over {items} ({count})",
            "divides by n - 1, which is 0",
            f"{text}, so each `{op}` is taken over {items}. The unbiased estimate divides by n - 1,"
            " and 0 / 0 is NaN. An epsilon that is added afterwards does not change that.",
        )
    if _has_targets(event) and _reduced(event):
        return (
            f"`{op}` averages over no target: all of them are ignored or weigh 0",
            "0 / 0: nothing to average",
            f"{text}, but no target of it counts, so the mean divides a sum of 0 by a weight of 0,"
            " and 0 / 0 is NaN.",
        )
    return (
        f"`{op}` over 0 items ({count})",
        "0 / 0: nothing to average",
        f"{text}: nothing was selected. The sum of nothing is 0, its count is 0, and 0 / 0 is NaN.",
    )


def _repair(event: Event) -> Fix:
    operand = _operand(event)
    x = phrases.source(operand, operand.role) if operand else "x"
    if has(event.op, Trait.SPREADS):
        title = "take the biased estimate, or skip batches of one item"
        code = f"{x}.{phrases.spelled(event.op)}(unbiased=False)"
        return Fix("guard-empty", title, "unsafe", code, request=ask.AllowEmpty())
    code = f"{x}.sum() / max({x}.numel(), 1)"
    if _has_targets(event):
        counted = "(target != ignore_index).sum().clamp_min(1)"
        counted = counted if _reduced(event) else "max(1, target.numel())"
        code = f'reduction="sum"  # then divide by {counted}'
    title = "count the items, and divide by at least 1"
    return Fix("guard-empty", title, "unsafe", code, request=ask.AllowEmpty())
