"""A custom autograd.Function whose backward is not the derivative of its forward."""

from collections.abc import Iterator

from gradscope.facts import (
    Compared,
    Finding,
    Fix,
    FunctionCheck,
    Phase,
    Root,
    SavedInstead,
    Severity,
    Trace,
)
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import backward_words as words
from gradscope.rules.wording import phrases


class BadCustomBackward(Rule):
    """
    ## What it does
    Finds a custom `autograd.Function` whose backward is not the derivative of its forward, and says
    how it differs: its sign, a factor, a mean in place of elements, an ignored grad_output, a
    transposed, swapped or missing gradient, one of another shape than its input.

    ## Why is this bad?
    Autograd uses what backward returns. A wrong gradient is finite and has the right shape, so what
    shows is a loss that diverges many steps later, or a model that does not learn.

    ## Example
    ```python
    import torch

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
    -         return 3 * x**2
    +         return grad_output * 3 * x**2

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    Cube.apply(x).square().sum().backward()
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point.

    ## Options
    A gradient that differs on purpose is a note: a straight-through estimator or surrogate (the
    forward is locally constant), and anything around a forward that passes its input on (gradient
    reversal, scaling, clipping). These depend on grad_output too: the slope alone is an error. So
    is that of a loss, and a note while the loss is not scaled. For any other Function say so in the
    class:
    `gradscope_ok = "why the gradient differs"`. `--no-custom-backward` leaves the check out.
    """

    code = "GS301"
    name = "bad-custom-backward"
    phase = Phase.BACKWARD
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        seen: set[tuple[object, ...]] = set()
        caused = _caused(trace.functions, roots)
        for check in trace.functions:
            # One slip that spoils the gradients of several inputs is one mistake.
            spoilt = check.slips or check.position
            key = (check.name, check.verdict, spoilt, check.location)
            if check.verdict not in ("wrong", "raises", "intended", "latent") or key in seen:
                continue
            if "swapped" in check.relation.kinds and (check.name, "swapped") in seen:
                continue
            seen |= {key, (check.name, check.relation.last)}
            is_wrong = check.verdict in ("wrong", "raises")
            partner = _partner(check, trace.functions)
            yield self._about(check, caused if is_wrong else (), partner)
            if is_wrong:
                caused = ()  # told once, with the first

    def _about(
        self, check: FunctionCheck, caused: tuple[Root, ...], other: FunctionCheck | None
    ) -> Finding:
        is_wrong = check.verdict != "intended"
        spoilt = (check.symptom,) if check.verdict == "wrong" else ()
        later = tuple(symptom for root in caused for symptom in root.symptoms)
        exchanged = (other.symptom,) if other is not None else ()  # it has no finding of its own
        aftermath = ""
        if later:
            first = min(later, key=lambda symptom: symptom.step)
            aftermath = f" It shows at step {first.step}: {phrases.symptom(first)}."
        return self.found(
            words.headline(check),
            words.mechanism(check) + aftermath,
            severity=_severity(check),
            step=check.step,
            op=check.op or check.name,
            node=check.node,
            location=check.location or check.call,
            label=words.label(check),
            related=places(("use", check.forward, "forward"), ("call", check.call, "called here")),
            evidence=_evidence(check, other),
            numbers=tuple(words.numbers(check)),
            symptoms=(*spoilt, *exchanged, *later),
            chain=caused[0].chain if caused else (),
            fixes=(_fix(check, other),) if is_wrong else (),
        )


def _caused(functions: tuple[FunctionCheck, ...], roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """The roots that a wrong Function explains: what broke after an update with its gradient. A
    NaN inside its own backward has a finding of its own, about the op and with its fix."""
    first = min((one.step for one in functions if one.verdict == "wrong"), default=None)
    return tuple(root for root in roots if first is not None and root.event.step > first)


def _partner(check: FunctionCheck, functions: tuple[FunctionCheck, ...]) -> FunctionCheck | None:
    """The input whose gradient this one has been exchanged with."""
    if check.relation.last != "swapped":
        return None
    return next(
        (c for c in functions if c.name == check.name and c.input == check.relation.detail), None
    )


def _severity(check: FunctionCheck) -> Severity:
    if check.verdict in ("intended", "latent"):
        return Severity.NOTE
    return Severity.WARNING if check.relation.last == "approximate" else Severity.ERROR


def _evidence(check: FunctionCheck, other: FunctionCheck | None) -> dict[str, object]:
    worst, compared = check.worst, check.compared
    found: dict[str, object] = {
        "function": check.name,
        "input": check.input,
        "position": check.position,
        "relations": list(check.relation.kinds),
        "factor": check.relation.factor,
        "detail": words.detail_in_words(check) or None,
        "index": list(worst.index) if worst is not None else None,
        "backward": worst.got if worst is not None else None,
        "derivative": worst.right if worst is not None else None,
        "measured_by": compared.truth or None,
        "dtype": compared.dtype,
        "step_size": compared.step,
        "tolerance": compared.tolerance,
        "bad": check.bad,
        "numel": check.numel,
        "calls": compared.calls,
        "rewrite": check.rewrite if check.verdict != "intended" else None,
        "reason": check.reason or None,
        "swap": other.position if other is not None else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _fix(check: FunctionCheck, other: FunctionCheck | None) -> Fix:
    detail = check.relation.detail
    request: ask.Rewrite | ask.Exchange = ask.Rewrite(
        check.rewrite,
        check.position,
        saved=detail if isinstance(detail, SavedInstead) else None,
        wrong_where=detail if isinstance(detail, Compared) else None,
        slips=check.slips,
    )
    if other is not None:
        request = ask.Exchange(check.position, other.position)
    return Fix("backward-rewrite", words.repair(check), "unsafe", request=request)
