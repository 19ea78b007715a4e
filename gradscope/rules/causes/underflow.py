"""GS205."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradscope.facts import (
    Absence,
    Ancestor,
    Call,
    Event,
    Finding,
    Fix,
    Phase,
    Related,
    Root,
    ScaleLoss,
    Severity,
    Subject,
    Symptom,
    Trace,
    Trouble,
    plural,
)
from gradscope.ops import Edge
from gradscope.ops.dtypes import finfo
from gradscope.ops.patterns import recognize
from gradscope.ops.traits import Trait, has
from gradscope.rules import fixes
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.proposals import proposed

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
    scale = torch.nn.functional.softplus(raw)
    loss = (torch.ones(2) / scale).sum()
    loss.backward()
    ```

    ## Use instead
    ```python
    import torch

    raw = torch.tensor([0.0, -150.0], requires_grad=True)
    scale = torch.nn.functional.softplus(raw) + 1e-6
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
        absences = trace.magnitudes.absences if trace.magnitudes else ()
        places: dict[object, list[Absence]] = {}
        for absence in absences:
            if absence.reason == self.name:
                places.setdefault((absence.node, absence.location), []).append(absence)
        for group in places.values():
            yield self._flushed_gradient(group)

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if not evidence.breaks_in_use(root):
            return None
        edge = evidence.edge(event)
        if evidence.weights_of_nothing(event) is not None:
            return None
        if edge is None or edge.cause not in ("zero-division", "log-zero", self.name):
            return None
        flushed = _flushed_at(event, edge)
        if flushed is None and not _loses_its_epsilon(event) and edge.cause != self.name:
            return None
        return self.finding(
            root,
            trace,
            message=_headline(event, edge, flushed),
            label=fixes.says(edge, event),
            why=_mechanism(event, edge, flushed),
            related=_born_here(flushed),
            fixes=_repairs(event, edge, flushed, root, trace),
            facts={"tiny": finfo(evidence.dtype(event)).tiny},
        )

    def _flushed_gradient(self, group: Sequence[Absence]) -> Finding:
        """Gradients that a cast to half precision on their way back flushed to exactly 0."""
        first = group[0]
        call = first.call
        size = phrases.number(first.grad_output or 0.0)
        tiny = phrases.number(SMALLEST_HALF)
        names = phrases.listed([absence.leaf for absence in group])
        flushed = plural(len(group), "gradient")
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR,
            phase=Phase.BACKWARD,
            step=first.step,
            op=call.op if call is not None else "",
            node=first.node,
            location=first.location,
            message=f"half precision flushed {flushed} to exactly 0: {names}",
            label="its backward casts the gradient to half precision",
            why=f"The gradient that comes in here has norm {size}, and each of its elements is less"
            f" than the smallest float16 number, {tiny}. It is rounded to 0, and so is everything"
            " that is computed from it. The loss is a normal number throughout.",
            evidence={
                "parameters": [absence.leaf for absence in group],
                "grad_output": first.grad_output,
                "smallest": SMALLEST_HALF,
            },
            numbers=(f"a gradient of norm {size} comes in, exactly 0 goes out",),
            symptoms=tuple(
                Symptom(Trouble.ZERO, Subject.GRADIENT, one.step, one.leaf) for one in group
            ),
            fixes=(
                proposed(ScaleLoss()),
                Fix("dtype", "run this part in bfloat16, whose range is float32's", "unsafe",
                    "torch.autocast(device, dtype=torch.bfloat16)"),
            ),
        )  # fmt: skip


def _flushed_at(event: Event, edge: Edge) -> Call | None:
    """The call above the operand whose result cannot truly be 0."""
    one: Ancestor | None = evidence.above(event, edge.argument)
    flushes = Trait.PRODUCT
    # Where a logarithm has a stable form with what made its operand, it is log-zero that knows it.
    if edge.cause == "zero-division" or recognize(event) is None:
        flushes |= Trait.POSITIVE
    if evidence.dtype(event) == "float16" and event.values().get("self"):
        flushes |= Trait.SQUARES  # the norm of what is not 0 is not 0 either
    while one is not None and one.call is not None:
        if has(one.call.op, flushes):
            return one.call
        if not (has(one.call.op, Trait.KEEPS_ZERO) or evidence.moves(one.call)):
            return None
        one = next((above for above in one.inputs if above is not None), None)
    return None


def _loses_its_epsilon(event: Event) -> bool:
    """An optimizer in half precision: its eps of 1e-8 and its squared gradients are both 0."""
    return event.phase is Phase.OPTIMIZER and evidence.dtype(event) == "float16"


def _headline(event: Event, edge: Edge, flushed: Call | None) -> str:
    dtype, count = evidence.dtype(event) or "its dtype", phrases.of_total(event.bad, event.numel)
    op = phrases.spelled(event.op)
    verb = "divides by" if edge.cause != "log-zero" else "is taken of"
    if flushed is None:
        return f"`{op}` {verb} a value that {dtype} flushed to 0 in the optimizer, at {count}"
    by = phrases.spelled(flushed.op)
    return f"`{op}` {verb} a `{by}` that {dtype} flushed to 0, at {count}"


def _mechanism(event: Event, edge: Edge, flushed: Call | None) -> str:
    dtype, gives = evidence.dtype(event) or "float32", phrases.outcome(event.output)
    tiny = phrases.number(finfo(dtype).tiny)
    if flushed is None:
        return (
            f"The smallest normal {dtype} number is {tiny}. The squared gradient and the"
            f" optimizer's eps are both below what {dtype} holds, so the denominator of the update"
            f" is exactly 0 and the update is {gives}."
        )
    return (
        f"{phrases.call(flushed, event.blame)} is greater than 0 in mathematics;"
        f" below about {tiny} a {dtype} number is flushed to 0. `{phrases.spelled(event.op)}` of"
        f" that 0 is {gives}."
    )


def _born_here(flushed: Call | None) -> tuple[Related, ...]:
    if flushed is None or flushed.location is None:
        return ()
    return (Related("birth", flushed.location, "flushed to 0 here"),)


def _repairs(
    event: Event, edge: Edge, flushed: Call | None, root: Root, trace: Trace
) -> tuple[Fix, ...]:
    if event.phase is Phase.OPTIMIZER:
        eps = Fix("epsilon", "give the optimizer an eps that float16 holds", "unsafe", "eps=1e-4")
        wide = Fix("dtype", "keep parameters and optimizer state in float32", "unsafe")
        return (eps, wide)
    stable = fixes.stable(edge, event, root, trace)
    guards = fixes.guards(edge, event)
    if flushed is not None and has(flushed.op, Trait.PRODUCT):  # of many factors below 1
        logs = Fix("stable-op", "add logarithms instead of multiplying", "safe", "x.log().sum(-1)")
        return (*stable, logs, fixes.wider(event), *guards)
    return (*guards, *stable, fixes.wider(event))
