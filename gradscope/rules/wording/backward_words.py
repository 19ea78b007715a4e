"""How a wrong backward is put into words, one relation after the other."""

import math
from collections.abc import Iterator, Mapping

from gradscope.facts import Compared, FunctionCheck, SavedInstead, TensorFactor
from gradscope.rules.wording.phrases import number, of_total, place

# For each relation a few words for under the carets, and the end of a sentence that begins with
# "What it returns". {told} is the detail, {factor} the factor in words.
_WORDS = {
    "raises": ("does not fit", ""),
    "none": ("None", "is None, and the input needs a gradient"),
    "count": ("{told} gradients", "is missing"),
    "shape": ("{shape}", "has the wrong shape"),
    "unsummed": (
        "to be summed over dimension {told}",
        "is not summed over the dimension that forward broadcast",
    ),
    "non-finite": ("gives {got}", "is not finite where the forward is smooth"),
    "zero": ("zero", "is zero, and the derivative is not"),
    "ignored": ("ignores grad_output", "does not depend on grad_output"),
    "partly": ("ignores grad_output {where}", "does not depend on grad_output {where}"),
    "added": ("not 0 for grad_output = 0", "is not 0 where grad_output is 0"),
    "number": (
        "uses only the {told} of grad_output",
        "uses only the {told} of grad_output, where each element has its own",
    ),
    "sign": ("wrong sign", "has the wrong sign"),
    "factor": ("{factor}", "is {factor}"),
    "mean": ("one mean for all elements", "is one number for all elements{mean}"),
    "extra": ("too large by a factor of {told}", "has a factor of {told} too many"),
    "missing": ("lacks a factor of {told}", "lacks a factor of {told}"),
    "transposed": ("transposed", "is transposed"),
    "swapped": ("the gradient of `{told}`", "is the gradient of `{told}`, and the other way round"),
    "saved": ("uses {told}", "is right once {was} is replaced: {needed} is needed"),
    "approximate": ("off by less than 1 %", "is off by less than 1 %"),
    "some": ("wrong {where}", "is right at some elements only{where_else}"),
    "identity": ("the forward passes its input on", ""),
    "rounded": ("the forward rounds it", ""),
    "surrogate": ("the forward does not change with it", ""),
    "bounded": ("kept within {told}", ""),
}
_UNKNOWN = ("disagrees with the forward", "is not the derivative of the forward")

# Of a backward that differs on purpose: the end of the headline, and the reason.
_ON_PURPOSE = {
    "identity": (
        "which passes its input on",
        "A forward that passes its input on is there for its backward: gradient reversal, scaling,"
        " clipping.",
    ),
    "rounded": (
        "which rounds an input to few values",
        "It takes what was rounded for the input itself, as a straight-through estimator does: how"
        " the rounding, and its scale, change with the input is left out.",
    ),
    "bounded": ("whose slope it bounds", "Its slope is right up to {told} and held there beyond."),
    "surrogate": (
        "whose derivative is 0 here",
        "Nearly everywhere the forward has derivative 0. A gradient that is not 0 is what a"
        " straight-through estimator is for, and an adjoint method, whose function reads its"
        " parameters elsewhere.",
    ),
}


def headline(check: FunctionCheck) -> str:
    name = f"`{check.name}.backward`"
    if check.verdict == "intended":
        why = "as its author says" if check.reason else _purpose(check)[0]
        return f"{name} differs from the derivative of its forward, {why}"
    if check.verdict == "latent":
        return f"{name} is right for a grad_output of 1 alone"
    match check.relation.kinds:
        case ("raises",):
            return f"{name} does not come to its end: an op refuses what it is given"
        case ("count",):
            return f"{name} returns {detail_in_words(check)} gradients"
        case ("none",):
            return f"{name} returns None for `{check.input}`, which needs a gradient"
        case ("shape", *_):
            return f"{name} gives the gradient of `{check.input}` the wrong shape"
    count = of_total(check.bad, check.numel)
    return f"{name} is wrong at {count} of the gradient of `{check.input}`"


def label(check: FunctionCheck) -> str:
    """A few words for under the carets: each relation once."""
    kinds = check.relation.kinds
    if check.verdict == "intended":
        kinds = tuple(kind for kind in kinds if kind not in ("some", "unknown")) or kinds
    given = _given(check)
    return ", ".join(filter(None, (_words(kind)[0].format_map(given) for kind in kinds)))


def mechanism(check: FunctionCheck) -> str:
    if check.verdict == "intended":
        return _intention(check)
    if check.verdict == "latent":
        return (
            f"What it returns for `{check.input}` does not depend on grad_output. None but 1 came"
            " in here, as into a loss that is not scaled; once it is scaled, averaged, or one part"
            " of the loss, its gradient is wrong."
        )
    given, last = _given(check), check.relation.last
    if last == "raises":
        written = (
            f" With {_written(check)} it runs, and every gradient is right." if check.slips else ""
        )
        return f"It was called with gradients of the shapes that its forward gave.{written}"
    *flaws, final = (_words(kind)[1].format_map(given) for kind in check.relation.kinds)
    listed = f"{', '.join(flaws)} and {final}" if flaws else final
    text = f"What it returns for `{check.input}` {listed}."
    if check.slips:
        text = f"{text[:-1]}; with {_written(check)} it is right."
    if check.relation.kinds == ("none",):
        return f"{text} Autograd takes None for 0, so `{check.input}` never learns through it."
    if "shape" in check.relation.kinds:
        return f"{text} Autograd refuses a gradient of another shape."
    if last in ("none", "count") and check.worst is None:
        return f"{text} Autograd takes what backward returns at its word."
    if last == "non-finite":
        return f"{text} The forward itself has a finite slope there."
    return (
        f"{text} Nothing is NaN, so autograd passes it on, and every parameter before it takes a"
        " wrong step."
    )


def detail_in_words(check: FunctionCheck) -> str:
    """The detail in words."""
    match check.relation.detail:
        case SavedInstead(was, needed):
            return f"{was} where {needed} is needed"
        case Compared(name, sign, bound, absolute):
            return f"{f'|{name}|' if absolute else name} {sign} {bound or 0.0:.4g}"
        case TensorFactor(form, name):
            return form.replace("{}", name)
        case text:
            return text


def numbers(check: FunctionCheck) -> Iterator[str]:
    worst, compared = check.worst, check.compared
    if worst is not None:
        at = f" = {number(worst.at)}" if worst.at is not None else ""
        ratio = worst.got / worst.right if worst.right else math.nan
        times = "" if math.isnan(ratio) else f" ({number(ratio)} times)"
        both = f"backward {number(worst.got)}, derivative {number(worst.right)}{times}"
        yield f"worst at `{check.input}`{place(worst.index)}{at}: {both}"
        yield f"derivative by {compared.truth}"
    if compared.dtype:
        agree = ", two backward runs agree" if worst is not None else ""
        tolerance = f"tolerance {number(compared.tolerance)} relative{agree}"
        yield f"measured in {compared.dtype} with {compared.calls} calls; {tolerance}"


def repair(check: FunctionCheck) -> str:
    match check.relation.last:
        case "count" if check.rewrite is not None:
            return "return None for what takes no gradient"
        case "none" | "count" | "zero":
            return f"return the gradient of `{check.input}`"
        case "swapped":
            return f"swap the gradients of `{check.input}` and `{detail_in_words(check)}`"
        case "saved":
            return f"save the right tensor: {detail_in_words(check)}"
    if check.rewrite is not None:
        return "correct the returned gradient"
    if check.slips:
        return f"write {_written(check)}"
    if check.compared.by_autograd:
        return "correct the formula, or let autograd differentiate the forward, which it does right"
    return "correct the formula"


def _written(check: FunctionCheck) -> str:
    return " and ".join(f"`{one.written}`" for one in check.slips)


def _words(kind: str) -> tuple[str, str]:
    return _WORDS.get(kind, _UNKNOWN)


def _given(check: FunctionCheck) -> Mapping[str, str]:
    detail, text = check.relation.detail, detail_in_words(check)
    saved = detail if isinstance(detail, SavedInstead) else None
    own_shape = check.relation.last in ("shape", "transposed")
    return {
        "told": text,
        "got": number(check.worst.got if check.worst is not None else None),
        "factor": _factor(check),
        "shape": text if own_shape else "wrong shape",
        "mean": "" if detail == "unrelated" else ", a mean, where each has its own",
        "where": f"where {text}" if detail else "at some elements",
        "where_else": f" (wrong where {text})" if detail else "",
        "was": saved.was if saved is not None else "",
        "needed": saved.needed if saved is not None else "",
    }


def _factor(check: FunctionCheck) -> str:
    factor = check.relation.factor or 1.0
    size, times = ("large", factor) if factor > 1 else ("small", 1 / factor)
    name = f", `{check.factor_name}`" if check.factor_name else ""
    return f"too {size} by a factor of {number(times)}{name}"


def _purpose(check: FunctionCheck) -> tuple[str, str]:
    known = (words for kind, words in _ON_PURPOSE.items() if kind in check.relation.kinds)
    return next(known, _ON_PURPOSE["surrogate"])


def _intention(check: FunctionCheck) -> str:
    if check.reason == "True":
        return "Its class says so: gradscope_ok is set."
    if check.reason:
        return f"Its class says why: {check.reason}."
    return _purpose(check)[1].format(detail_in_words=detail_in_words(check))
