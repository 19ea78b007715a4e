"""A 0 that is no true zero: flushed by its dtype, and then used."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gradscope.facts import (
    Absence,
    Call,
    Event,
    Finding,
    Fix,
    NoGradient,
    Phase,
    Root,
    Trace,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.dtypes import finfo
from gradscope.ops.patterns import recognize
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Asked, Rule, places
from gradscope.rules.wording import phrases

SMALLEST_HALF = 2.0**-24  # the smallest float16 number that is not 0


class Underflow(Rule):
    """
    ## What it does
    Finds a 0 that is no true zero: a result too small for its dtype was flushed to 0, and a
    division or a logarithm of it followed. Also an epsilon that its dtype rounds to 0.

    ## Why is this bad?
    `softplus(-150)` is 7e-66 and the smallest float32 number is 1e-45; the smallest float16 is
    6e-8, so Adam's eps of 1e-8 is 0 there. What is divided by it is inf or NaN.

    ## Example
    ```python
    import torch

    raw = torch.tensor([0.0, -150.0], requires_grad=True)
    - scale = torch.nn.functional.softplus(raw)
    + scale = torch.nn.functional.softplus(raw) + 1e-6
    loss = (torch.ones(2) / scale).sum()
    loss.backward()
    ```

    ## Fix safety
    Unsafe: an epsilon outside of the function bounds its result from below and shifts it by as
    much everywhere. Working with logarithms, or in a wider dtype, keeps the values.
    """

    code = "GS205"
    name = "underflow"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from super().check(trace, roots)
        places: dict[object, list[Absence]] = defaultdict(list)
        for absence in trace.magnitudes.absences:
            if absence.reason is NoGradient.UNDERFLOW:
                places[absence.node, absence.location].append(absence)
        yield from map(self._flushed_gradient, places.values())

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if not evidence.breaks_in_use(root) or evidence.has_masked_weights(event, trace):
            return None
        edge = evidence.edge(event)
        if edge is None or edge.cause not in ("zero-division", "log-zero", self.name):
            return None
        flushed = _flushed_at(event, edge)
        # An optimizer in half precision: its eps of 1e-8 and its squared gradients are both 0.
        is_half = event.phase is Phase.OPTIMIZER and evidence.dtype(event) == "float16"
        if flushed is None and not is_half and edge.cause != self.name:
            return None
        born = flushed.location if flushed is not None else None
        message, why = _words(event, edge, flushed)
        return self.finding(
            root,
            trace,
            message=message,
            label=fixes.says(edge, event),
            why=why,
            related=places(("birth", born, "flushed to 0 here")),
            fixes=_repairs(event, edge, flushed, trace),
            facts={"tiny": finfo(evidence.dtype(event)).tiny},
        )

    def _flushed_gradient(self, group: Sequence[Absence]) -> Finding:
        """Gradients that a cast to half precision on their way back flushed to exactly 0."""
        first, names = group[0], [absence.leaf for absence in group]
        size, tiny = phrases.number(first.grad_output or 0.0), phrases.number(SMALLEST_HALF)
        wider = "run this part in bfloat16, whose range is float32's"
        autocast = "torch.autocast(device, dtype=torch.bfloat16)"
        return self.found(
            f"half precision flushed {plural(len(group), 'gradient')} to exactly 0:"
            f" {phrases.listed(names)}",
            f"The gradient that comes in here has norm {size}, and each of its elements is less"
            f" than the smallest float16 number, {tiny}. It is rounded to 0, and so is everything"
            " that is computed from it. The loss is a normal number throughout.",
            first.call,
            phase=Phase.BACKWARD,
            step=first.step,
            node=first.node,
            location=first.location,
            label="its backward casts the gradient to half precision",
            evidence={
                "parameters": names,
                "grad_output": first.grad_output,
                "smallest": SMALLEST_HALF,
            },
            numbers=(f"a gradient of norm {size} comes in, exactly 0 goes out",),
            symptoms=tuple(one.symptom for one in group),
            fixes=(
                ask.ScaleLoss(),
                Fix("dtype", wider, "unsafe", autocast, request=ask.WiderDtype()),
            ),
        )


def _flushed_at(event: Event, edge: Edge) -> Call | None:
    """The call above the operand whose result cannot truly be 0."""
    flushes = Trait.PRODUCT
    # Where a logarithm has a stable form with what made its operand, it is log-zero that knows it.
    if edge.cause == "zero-division" or recognize(event) is None:
        flushes |= Trait.POSITIVE
    for call in evidence.made_from(event, edge.argument):
        if has(call.op, flushes):
            return call
        if not has(call.op, Trait.KEEPS_ZERO):
            return None
    return None


def _words(event: Event, edge: Edge, flushed: Call | None) -> tuple[str, str]:
    """The headline and the mechanism."""
    dtype, op, gives = evidence.dtype(event), phrases.spelled(event.op), event.output
    tiny = phrases.number(finfo(dtype or "float32").tiny)
    uses = f"`{op}` {'divides by' if edge.cause != 'log-zero' else 'is taken of'}"
    to_zero = f"that {dtype or 'its dtype'} flushed to 0"
    if flushed is None:
        return (
            f"{uses} a value {to_zero} in the optimizer, at {phrases.bad_of(event)}",
            f"The smallest normal {dtype or 'float32'} number is {tiny}. The squared gradient and"
            f" the optimizer's eps are both below what {dtype or 'float32'} holds, so the"
            f" denominator of the update is exactly 0 and the update is {phrases.outcome(gives)}.",
        )
    return (
        f"{uses} a `{phrases.spelled(flushed.op)}` {to_zero}, at {phrases.bad_of(event)}",
        f"{phrases.call(flushed, event.blame)} is greater than 0 in mathematics; below about {tiny}"
        f" a {dtype or 'float32'} number is flushed to 0. `{op}` of that 0 is"
        f" {phrases.outcome(gives)}.",
    )


def _repairs(event: Event, edge: Edge, flushed: Call | None, trace: Trace) -> tuple[Asked, ...]:
    if event.phase is Phase.OPTIMIZER:
        eps = "give the optimizer an eps that float16 holds"
        wide = "keep parameters and optimizer state in float32"
        return (
            Fix("epsilon", eps, "unsafe", "eps=1e-4", request=ask.KeepOff()),
            Fix("dtype", wide, "unsafe", request=ask.WiderDtype()),
        )
    known = fixes.preferred(Underflow.name, event, edge, trace)
    if flushed is not None and has(flushed.op, Trait.PRODUCT):  # of many factors below 1
        title = "add logarithms instead of multiplying"
        logs = Fix("stable-op", title, "safe", "x.log().sum(-1)", request=ask.StableForm())
        last = [fix for fix in known if isinstance(fix.request, ask.KeepOff)]
        return (logs, *(fix for fix in known if fix not in last), *last)
    if flushed is not None and flushed.location is not None:
        return (ask.AddBehind(flushed), *known)
    return known
