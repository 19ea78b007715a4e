"""How a wrong backward is put into words, one relation after the other."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import Compared, FunctionCheck, SavedInstead, TensorFactor
from gradscope.rules.wording.phrases import number, of_total, place

_FLAWS = {
    "none": "is None, and the input needs a gradient",
    "count": "is missing",
    "shape": "has the wrong shape",
    "unsummed": "is not summed over the dimension that forward broadcast",
    "non-finite": "is not finite where the forward is smooth",
    "zero": "is zero, and the derivative is not",
    "ignored": "does not depend on grad_output",
    "number": "uses grad_output as one number only",
    "sign": "has the wrong sign",
    "mean": "is one number for all elements",
    "transposed": "is transposed",
    "swapped": "is that of another input",
    "saved": "is computed from the wrong saved tensor",
    "approximate": "is off by less than 1 %",
    "some": "is right at some elements only",
    "unknown": "is not the derivative of the forward",
}


def headline(check: FunctionCheck) -> str:
    name = f"`{check.name}.backward`"
    if check.verdict == "intended":
        return f"{name} differs from the derivative of its forward{_on_purpose(check)}"
    if check.relations == ("count",):
        return f"{name} returns {told(check)} gradients"
    if check.relations == ("none",):
        return f"{name} returns None for `{check.input}`, which needs a gradient"
    if check.relations[:1] == ("shape",):
        return f"{name} gives the gradient of `{check.input}` the wrong shape"
    count = of_total(check.bad, check.numel)
    return f"{name} is wrong at {count} of the gradient of `{check.input}`"


def _on_purpose(check: FunctionCheck) -> str:
    if check.reason:
        return ", as its author says"
    if "identity" in check.relations:
        return ", which passes its input on"
    if "bounded" in check.relations:
        return ", whose slope it bounds"
    return ", a straight-through or surrogate gradient"


def label(check: FunctionCheck) -> str:
    """A few words for under the carets: each relation once."""
    kinds = check.relations
    if check.verdict == "intended":
        kinds = tuple(kind for kind in kinds if kind not in ("some", "unknown")) or kinds
    parts = [_part(check, kind) for kind in kinds]
    return ", ".join(part for part in parts if part)


def _part(check: FunctionCheck, kind: str) -> str:
    match kind:
        case "factor":
            return _factor(check)
        case "number":
            return f"uses only the {told(check)} of grad_output"
        case "ignored":
            return "ignores grad_output"
        case "sign":
            return "wrong sign"
        case "mean":
            return "one mean for all elements"
        case "extra":
            return f"too large by a factor of {told(check)}"
        case "missing":
            return f"lacks a factor of {told(check)}"
        case "saved":
            return f"uses {told(check)}"
        case "swapped":
            return f"the gradient of `{told(check)}`"
        case "some":
            return f"wrong where {told(check)}" if check.detail else "wrong at some elements"
        case "shape":
            return told(check) if check.relations[-1] in ("shape", "transposed") else "wrong shape"
        case "unsummed":
            return f"to be summed over dimension {told(check)}"
        case "none":
            return "None"
        case "count":
            return f"{told(check)} gradients"
        case "non-finite":
            return f"gives {number(check.got)}"
        case "identity":
            return "the forward passes its input on"
        case "surrogate":
            return "the forward is locally constant"
        case "bounded":
            return f"kept within {told(check)}"
        case "zero":
            return "zero"
        case "transposed":
            return "transposed"
        case "approximate":
            return "off by less than 1 %"
    return "disagrees with the forward"


def _factor(check: FunctionCheck) -> str:
    factor = check.factor or 1.0
    large = factor > 1
    times = number(factor if large else 1 / factor)
    size = check.factor_name
    return f"too {'large' if large else 'small'} by a factor of {times}" + (
        f", `{size}`" if size else ""
    )


def mechanism(check: FunctionCheck) -> str:
    if check.verdict == "intended":
        return _intention(check)
    flaws = [_flaw(check, kind) for kind in check.relations]
    text = f"What it returns for `{check.input}` {_listed(flaws)}."
    if check.relations == ("none",):
        return f"{text} Autograd takes None for 0, so `{check.input}` never learns through it."
    if check.relations[-1] in ("none", "count", "shape", "transposed") and check.got is None:
        return f"{text} Autograd takes what backward returns at its word."
    return (
        f"{text} Nothing is NaN, so autograd passes it on, and every parameter before it takes"
        " a wrong step."
        if check.relations[-1] != "non-finite"
        else f"{text} The forward itself has a finite slope there."
    )


def _flaw(check: FunctionCheck, kind: str) -> str:
    match kind:
        case "factor":
            return f"is {_factor(check)}"
        case "extra":
            return f"has a factor of {told(check)} too many"
        case "missing":
            return f"lacks a factor of {told(check)}"
        case "saved" if isinstance(check.detail, SavedInstead):
            return f"is right once {check.detail.was} is replaced: {check.detail.needed} is needed"
        case "swapped":
            return f"is the gradient of `{told(check)}`, and the other way round"
        case "some":
            where = f" (wrong where {told(check)})" if check.detail else ""
            return f"{_FLAWS[kind]}{where}"
        case "mean" if check.detail != "unrelated":
            return "is one number for all elements, a mean, where each has its own"
        case "number":
            return f"uses only the {told(check)} of grad_output, where each element has its own"
    return _FLAWS.get(kind, _FLAWS["unknown"])


def told(check: FunctionCheck) -> str:
    """The detail in words."""
    match check.detail:
        case SavedInstead(was, needed):
            return f"{was} where {needed} is needed"
        case Compared(name, sign, bound, absolute):
            return f"{f'|{name}|' if absolute else name} {sign} {bound or 0.0:.4g}"
        case TensorFactor(form, name):
            return form.replace("{}", name)
        case text:
            return text


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _intention(check: FunctionCheck) -> str:
    if check.reason and check.reason != "True":
        return f"Its class says why: {check.reason}."
    if check.reason:
        return "Its class says so: gradscope_ok is set."
    if "identity" in check.relations:
        return (
            "A forward that passes its input on is there for its backward: gradient reversal,"
            " scaling, clipping."
        )
    if "bounded" in check.relations:
        return f"Its slope is right up to {told(check)} and held there beyond."
    return (
        "Nearly everywhere the forward has derivative 0; a gradient that is not 0 is what a"
        " straight-through estimator is for."
    )


def numbers(check: FunctionCheck) -> Iterator[str]:
    if check.got is not None and check.right is not None:
        where = f"`{check.input}`{place(check.index)}" if check.index else f"`{check.input}`"
        at = f" = {number(check.at)}" if check.at is not None else ""
        ratio = check.got / check.right if check.right else None
        times = f" ({number(ratio)} times)" if ratio is not None and ratio == ratio else ""
        got, right = number(check.got), number(check.right)
        yield f"worst at {where}{at}: backward {got}, derivative {right}{times}"
        yield f"derivative by {check.truth}"
    if check.dtype:
        agree = ", two backward runs agree" if check.got is not None else ""
        yield (
            f"measured in {check.dtype} with {check.calls} calls; tolerance"
            f" {number(check.tolerance)} relative{agree}"
        )


def repair(check: FunctionCheck) -> str:
    match check.relations[-1]:
        case "none" | "count" | "zero":
            return f"return the gradient of `{check.input}`"
        case "swapped":
            return f"swap the gradients of `{check.input}` and `{told(check)}`"
        case "saved":
            return f"save the right tensor: {told(check)}"
    if check.rewrite is not None:
        return "correct the returned gradient"
    if check.truth.startswith("autograd"):
        return (
            "correct the formula, or leave the Function out: autograd differentiates its forward"
            " rightly"
        )
    return "correct the formula"
