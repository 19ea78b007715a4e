"""The corrected expression, as a template, where the relation that was found allows one."""

from __future__ import annotations

from gradscope.record.probes.blame import Scope
from gradscope.record.probes.relations import Relation

# How a form of `relations._FORMS` is written in code.
_CODE = {
    "{}": "{}",
    "|{}|": "{}.abs()",
    "{}^2": "{}.square()",
    "1 + |{}|": "(1 + {}.abs())",
    "1 - {}": "(1 - {})",
    "1 + {}": "(1 + {})",
    "1 - {}^2": "(1 - {}.square())",
    "1 + {}^2": "(1 + {}.square())",
    "sqrt({})": "{}.sqrt()",
    "exp({})": "{}.exp()",
}


def template(relation: Relation, scope: Scope, shape: tuple[int, ...]) -> str | None:
    """`{returned}` is what backward returns now, `{elementwise}` that without its mean,
    `{grad_output}` its argument. None where no rewriting is known."""
    text = "{returned}"
    for kind in reversed(relation.kinds):
        match kind:
            case "factor" if relation.factor is not None:
                by = divided(relation.factor, scope)
                if by is None:
                    return None
                text = f"{text} {by}"
            case "sign":
                text = f"-{text}"
            case "ignored":
                text = (
                    f"{{grad_output}} * {text}"
                    if not text.startswith("-")
                    else f"-{{grad_output}} * {text[1:]}"
                )
            case "mean" | "number" if relation.detail != "unrelated":
                text = text.replace("{returned}", "{elementwise}")
            case "transposed" if len(shape) == 2:
                text = text.replace("{returned}", "{returned}.mT")
            case "unsummed":
                text = f"{{returned}}.sum({relation.detail})"
            case "extra" | "missing":
                code = _written(relation.detail, scope)
                if code is None:
                    return None
                text = f"{text} {'/' if kind == 'extra' else '*'} {code}"
            case _:
                return None
    return text


def divided(factor: float, scope: Scope) -> str | None:
    """ "/ n" for a gradient that is too large by a factor, "* n" for one that is too small."""
    for number, sign in ((factor, "/"), (1 / factor, "*")):
        written = _spelled(number, scope)
        if written is not None:
            return f"{sign} {written}"
    return None


def _spelled(number: float, scope: Scope) -> str | None:
    whole = round(number)
    if whole < 1 or abs(number - whole) > 1e-3 * number:
        return None
    for name, value in scope.numbers.items():
        if value == whole and whole > 1:
            return name
    if whole > 4:  # small numbers are constants of the formula, not sizes
        for name, shape in scope.shapes.items():
            size = 1
            for length in shape:
                size *= length
            if shape and whole == size:
                return f"{name}.numel()"
        for name, shape in scope.shapes.items():
            if whole in shape:
                return f"{name}.shape[{shape.index(whole)}]"
    return str(whole) if whole <= 16 else None


def _written(detail: str, scope: Scope) -> str | None:
    for form, code in _CODE.items():
        before, _, after = form.partition("{}")
        name = (
            detail.removeprefix(before).removesuffix(after)
            if after
            else detail.removeprefix(before)
        )
        if form.replace("{}", name) == detail and name in scope.shapes:
            return code.replace("{}", name)
    return None
