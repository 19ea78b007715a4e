"""A softmax over nothing but -inf."""

from collections.abc import Iterator

from gradscope.facts import Event, Finding, Fix, Kind, Operand, Root, Trace, plural
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases, proposals


class AllMaskedSoftmax(Rule):
    """
    ## What it does
    Finds `softmax`, `log_softmax`, `logsumexp` or attention over a row that holds nothing but -inf:
    a query that may look at no key.

    ## Why is this bad?
    Every weight of the row is 0, and their sum too: 0 / 0 is NaN. Dropping the row from the loss
    does not help, since backward multiplies it by gradient 0, and 0 times NaN is NaN.

    ## Example
    ```python
    import torch

    scores = torch.zeros(2, 3, requires_grad=True)
    pad = torch.tensor([[False, False, True], [True, True, True]])
    - weights = scores.masked_fill(pad, -torch.inf).softmax(-1)
    + empty = pad.all(-1, keepdim=True)
    + weights = scores.masked_fill(pad & ~empty, -torch.inf).softmax(-1)
    + weights = weights.masked_fill(empty, 0.0)
    (weights @ torch.arange(3.0)).sum().backward()
    ```

    ## Fix safety
    Safe: rows with at least one key are bit-identical, and empty rows give 0 instead of NaN.
    """

    code = "GS206"
    name = "all-masked-softmax"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        if evidence.situation(root) is evidence.Situation.OUTSIDE:
            return None
        event = next(
            (one for one in (root.event, *root.chain) if _is_empty_row(one, root, trace)), None
        )
        if event is None:
            return None
        rows, total = _rows(event)
        is_sum = has(event.op, Trait.LOG_SUMS)
        writes = root.event.blame.location if root.event.kind is Kind.CONSTANT else None
        return self.finding(
            root,
            trace,
            event=event,
            message=_headline(event),
            label="the slope is exp(-inf - -inf)" if is_sum else "every weight is 0, so 0 / 0",
            why=_mechanism(root, event),
            related=places(("mask", writes, "masks the scores")),
            fixes=_OF_SUMS if is_sum else tuple(_repairs(event)),
            facts={"masked_rows": rows, "row_total": total},
        )


def _repairs(event: Event) -> Iterator[Fix]:
    """Scores of each with each are to be normalised along the last dimension, as a rule: where no
    row is masked along that, another one was taken by mistake."""
    shape = event.output.shape if event.output is not None else ()
    one, dim = _masked(event), dict(event.scalars).get("dim", -1)
    other = []
    if one is not None and isinstance(dim, int) and not one.masked_rows and len(shape) > 1:
        if dim % len(shape) != len(shape) - 1:
            other.append(proposals.proposed(ask.AlongClasses(phrases.spelled(event.op), -1)))
    is_square = len(shape) > 1 and shape[-1] == shape[-2]
    yield from other if is_square else ()
    yield from (*_of_triangle(event), *_REPAIRS)
    yield from () if is_square else other


def _of_triangle(event: Event) -> Iterator[Fix]:
    """Where one row of each square matrix is masked, the first or the last: as by a triangle that
    takes the diagonal with it."""
    shape = event.output.shape if event.output is not None else ()
    rows, total = _rows(event)
    if len(shape) > 1 and shape[-1] == shape[-2] > 1 and len(event.index) == len(shape):
        is_edge = event.index[-2] in (0, shape[-1] - 1)
        if is_edge and rows * shape[-1] == total:
            yield proposals.proposed(ask.ShiftDiagonal(up=event.index[-2] == 0))


_REPAIRS = (
    Fix(
        "guard-empty",
        "leave rows without any key unmasked, and zero them afterwards",
        "safe",
        "empty = mask.all(-1, keepdim=True)\n"
        "weights = scores.masked_fill(mask & ~empty, -torch.inf).softmax(-1)\n"
        "weights = weights.masked_fill(empty, 0.0)",
        request=ask.AllowEmpty(),
    ),
    Fix(
        "masked-branch",
        "give those rows harmless scores before the softmax",
        "safe",
        "scores = torch.where(scores.isneginf().all(-1, keepdim=True), 0.0, scores)",
        request=ask.HarmlessOperand(hidden=False),
    ),
    Fix("data", "leave samples without any key out of the batch", "unsafe"),
)


_OF_SUMS = (
    Fix(
        "guard-empty",
        "keep a large negative number in the place of -inf",
        "safe",
        "x = x.clamp_min(torch.finfo(x.dtype).min)",
        request=ask.AllowEmpty(),
    ),
    Fix(
        "masked-branch",
        "give what is -inf on all sides a harmless operand, and the result -inf again",
        "safe",
        request=ask.HarmlessOperand(hidden=False),
    ),
)
_PAIR = {"self", "other"}
_OF_A_ROW = (
    "A row in which every score is -inf has no largest element to go by: exp(-inf) is 0 for each,"
    " and so is their sum, so the row is 0 / 0 = NaN."
)
_OF_A_SUM = (
    "The logarithm of a sum of zeros is -inf, which is right. Its slope is each summand's share of"
    " the sum, exp(-inf - -inf), and that is NaN."
)


def _is_empty_row(event: Event, root: Root, trace: Trace) -> bool:
    if root.event.kind is Kind.CONSTANT and has(event.op, Trait.LOG_SUMS):
        return True  # an intentional -inf, and nothing else in the row
    if event.op == "div":
        return evidence.has_masked_weights(event, trace)
    if not evidence.gives_nan(event):
        return False
    one = _masked(event)
    if not has(event.op, Trait.SOFTMAX) or one is None or one.nan or one.posinf:
        return False
    # A softmax breaks at -inf in full rows alone. Attention makes its scores itself, and those
    # may overflow under a mask that leaves every row a key.
    return not evidence.is_attention(event) or one.masked_rows > 0


def _masked(event: Event) -> Operand | None:
    """The operand that holds the -inf: the scores, or the mask that is added to them."""
    return next((one for one in event.operands if one.neginf), None)


def _rows(event: Event) -> tuple[int, int]:
    """How many rows are NaN, of how many: a row is what one softmax runs over, or a pair."""
    if _is_of_pairs(event):
        return (event.output.nan if event.output else event.bad), event.numel
    dim = dict(event.scalars).get("dim", -1)
    shape = event.output.shape if event.output else ()
    if not shape or not isinstance(dim, int) or not shape[dim]:
        return event.bad, event.numel
    return -(-event.bad // shape[dim]), event.numel // shape[dim]


def _is_of_pairs(event: Event) -> bool:
    """Whether two numbers are added up, and not those of a row."""
    return has(event.op, Trait.LOG_SUMS) and {one.role for one in event.operands} >= _PAIR


def _headline(event: Event) -> str:
    op, count = phrases.spelled(event.op), phrases.bad_of(event)
    if event.op == "div":
        return f"`{op}` divides by a row sum of 0, as every weight of the row is masked, at {count}"
    rows, total = _rows(event)
    unit = "element" if _is_of_pairs(event) else "row"
    share = f"{rows:,} of {plural(total, unit)}" if total else f"at least 1 {unit}"
    return f"`{op}` runs over nothing but -inf in {share}"


def _mechanism(root: Root, event: Event) -> str:
    one = _masked(event)
    text = _OF_A_SUM if has(event.op, Trait.LOG_SUMS) else _OF_A_ROW
    if one is not None:
        count = phrases.of_total(one.neginf, one.numel)
        text = f"{text} {phrases.name(one, 'The operand')} is -inf at {count}."
    mask = evidence.discard(root)
    if mask is not None and evidence.situation(root) is evidence.Situation.HIDDEN:
        by = phrases.call(mask, event.blame)
        text = f"{text} {by} drops the row going forward; going back, gradient 0 times NaN is NaN."
    return text
