"""The corrected expression, as a template, where the relation that was found allows one."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradscope.facts import TensorFactor
from gradscope.facts.functions import Detail
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
                by = divided(relation.factor, scope, shape)
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


def divided(factor: float, scope: Scope, shape: tuple[int, ...]) -> str | None:
    """ "/ n" for a gradient that is too large by a factor, "* n" for one that is too small."""
    for number, sign in ((factor, "/"), (1 / factor, "*")):
        written = _spelled(number, scope, shape) or _held(number, scope)
        if written is not None:
            return f"{sign} {written}"
    return None


def _held(number: float, scope: Scope) -> str | None:
    """A fraction as code, where backward holds it or its complement: `ctx.p`, `(1 - ctx.p)`."""
    for name, value in scope.numbers.items():
        forms = {name: value, f"(1 - {name})": 1 - value, f"(1 + {name})": 1 + value}
        for text, form in forms.items():
            if value not in (0, 1) and math.isclose(form, number, rel_tol=1e-6):
                return text
    return None


def _spelled(number: float, scope: Scope, shape: tuple[int, ...]) -> str | None:
    """A whole number as code: a name that holds it, a size of a tensor, or the number itself."""
    whole = round(number)
    if whole < 1 or abs(number - whole) > 1e-3 * number:
        return None
    if whole > 1 and (held := next((k for k, v in scope.numbers.items() if v == whole), None)):
        return held
    if whole > 4:  # small numbers are constants of the formula, not sizes
        named = next((size for size in _sizes(scope, shape) if size[1] == whole), None)
        if named is not None:
            return named[0]
    return str(whole) if whole <= 16 else None


def _sizes(scope: Scope, shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Sizes of backward's tensors as code, the likeliest to be divided by first."""
    tensors = {name: found for name, found in scope.shapes.items() if found}
    alike = {name: found for name, found in tensors.items() if found == shape}
    yield from ((f"{name}.numel()", math.prod(found)) for name, found in alike.items())
    yield from ((f"{name}.shape[0]", found[0]) for name, found in tensors.items())
    for name, found in tensors.items():
        yield from ((f"{name}.shape[{dim}]", size) for dim, size in enumerate(found))
    yield from ((f"{name}.numel()", math.prod(found)) for name, found in tensors.items())


def _written(factor: Detail, scope: Scope) -> str | None:
    if not isinstance(factor, TensorFactor) or factor.name not in scope.shapes:
        return None
    code = _CODE.get(factor.form)
    return code.replace("{}", factor.name) if code is not None else None
