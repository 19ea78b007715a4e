"""A bound or an epsilon that half precision rounds away."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import Call, Event, Finding, Fix, Location, LostBound, Root, Trace
from gradscope.facts import requests as ask
from gradscope.ops import Edge, lookup
from gradscope.ops.dtypes import finfo
from gradscope.ops.edges import operands
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class RoundedBound(Rule):
    """
    ## What it does
    Finds a bound or an epsilon that is to keep values off 0, 1 or -1, that float16 or bfloat16
    rounds to that number, and an op that breaks there: `clamp(eps, 1 - eps)` before a logarithm,
    `+ eps` in a denominator, `acos` of a clamped cosine.

    ## Why is this bad?
    The bfloat16 number below 1 is 0.996, and `1 - 1e-6` is 1. The float16 number above 0 is 6e-8,
    and 1e-8 is 0. So `clamp` gives the very number that it is to keep off, and `log`, a division or
    a slope of it is infinite, in code that has run for years in float32.

    ## Example
    ```python
    import torch

    logits = torch.tensor([2.0, 9.0], dtype=torch.bfloat16, requires_grad=True)
    - p = torch.sigmoid(logits).clamp(1e-6, 1 - 1e-6)
    + p = torch.sigmoid(logits.float()).clamp(1e-6, 1 - 1e-6)
    loss = -torch.log(1 - p).mean()
    loss.backward()
    ```

    ## Fix safety
    Unsafe: from the cast on the values are those of float32, which rounds less. A larger bound that
    the dtype can hold gives other values, and no gradient where it binds.
    """

    code = "GS209"
    name = "rounded-bound"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event, lost = root.event, root.event.bound
        edge = evidence.edge(event) if lost is not None else None
        if lost is None or edge is None or _breaks_all_the_same(event, edge, lost):
            return None
        op, taken = phrases.spelled(lost.call.op), phrases.call(event.blame, lost.call)
        said = " and ".join([f"{_written(*one)} is {one[0]:g}" for one in lost.rounded])
        apart = " and ".join([_next(lost, *one) for one in lost.rounded])
        return self.finding(
            root,
            trace,
            message=f"the bound of `{op}` is rounded away: {said} in {lost.dtype}",
            blame=lost.call,
            label=f"{said} in {lost.dtype}",
            why=f"{apart}. `{op}` lets through what it is to keep off, and {taken} breaks there:"
            f" {fixes.says(edge, event)}.",
            related=places(("use", event.blame.location, fixes.says(edge, event))),
            fixes=(ask.WidenBound(tuple(_made(trace, lost.call))), *_guards(event, edge, trace)),
            facts={"rounded": [list(one) for one in lost.rounded]},
        )


def _breaks_all_the_same(event: Event, edge: Edge, lost: LostBound) -> bool:
    """Whether the op would in float32, where the bound is what the program says."""
    wide = finfo("float32")
    limits = {"dtype.max": wide.max, "dtype.tiny": wide.tiny, "dtype.eps": wide.eps}
    known = {**operands(event), **dict(lost.instead), **limits}
    fact = lookup(event.op)
    return edge.holds(known) or fact is None or fact.value_edge(known) is not None


def _written(point: float, number: float) -> str:
    """`1 - 1e-06`: as such a number is written."""
    beside = f"{abs(number - point):.3g}"
    return f"{point:g} {'-' if number < point else '+'} {beside}" if point else f"{number:g}"


def _next(lost: LostBound, point: float, number: float) -> str:
    limits, is_above = finfo(lost.dtype), number > point
    step = limits.tiny if point == 0 else 1.0 if is_above == (point > 0) else 0.5
    following = point + math.copysign(step * limits.eps, number - point)
    side = "above" if is_above else "below"
    return f"The next {lost.dtype} number {side} {point:g} is {following:.4g}"


def _made(trace: Trace, bound: Call) -> Iterator[Location]:
    """Where that was made which the bound is of, each time that it did not hold."""
    for event in trace.events:
        lost = event.bound
        if lost is not None and lost.call.location == bound.location:
            for role, _ in lost.instead:
                calls = list(evidence.made_from(event, role))
                behind = (i for i, one in enumerate(calls, 1) if one.seq == lost.call.seq)
                for one in calls[next(behind, len(calls)) :][:1]:
                    if one.location is not None:
                        yield one.location


def _guards(event: Event, edge: Edge, trace: Trace) -> Iterator[Fix]:
    """Larger bounds, where the op reads its operand."""
    if edge.cause in fixes.PREFERENCE:
        for one in fixes.preferred(edge.cause, event, edge, trace):
            if one.request == ask.KeepOff():
                yield replace(one, request=ask.KeepOff(event.blame))
