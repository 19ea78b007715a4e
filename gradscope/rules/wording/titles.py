"""What a fix is called, as advice and as a patch alike."""

from __future__ import annotations


def harmless(op: str) -> str:
    return f"give `{op}` a harmless operand where its result is thrown away"


def guarded(kind: str, what: str, op: str) -> str:
    """`kind` is epsilon or clamp-domain, `what` the operand in a sentence."""
    if kind == "epsilon":
        return f"keep {what} away from 0"
    return f"keep {what} inside the domain of `{op}`"


def conditioned(what: str) -> str:
    """`what` is a matrix that is to be decomposed."""
    return f"keep {what} well conditioned"


def replaced(op: str, number: str) -> str:
    return f"give `{op}` the operand {number} where its result is not finite"


def restored(op: str) -> str:
    return f"give `{op}` a harmless operand there, and the result the value that it had"


def in_range(what: str, op: str) -> str:
    """Of an operand whose op overflows: its domain has no end there."""
    return f"bound {what} so that `{op}` stays in range"


def bounded(name: str, bound: str, op: str) -> str:
    return f"bound `{name}` to +-{bound} for all that read it, so that `{op}` stays in range"


def selected(condition: str) -> str:
    return f"take the elements at which `{condition}`"


def positive(what: str, instead: str) -> str:
    return f"keep {what} positive by softplus{f', in the place of {instead}' if instead else ''}"


def nothing(what: str) -> str:
    return f"let 0 / 0 be 0: divide by 1 where {what} is 0"


def counted(what: str) -> str:
    return f"keep the count {what} at 1 or more"


def stable(text: str) -> str:
    return f"compute it in one stable step: `{text}`"


def in_logarithms(text: str) -> str:
    return f"keep to logarithms up to `{text}`"


def recurrence(names: list[str]) -> str:
    told = " and ".join(f"`{name}`" for name in names)
    return f"carry {told} along as logarithms"


def wider(op: str, dtype: str) -> str:
    return f"compute `{op}` in {dtype}"


def slower(old: float, new: float) -> str:
    return f"lower the learning rate from {old:g} to {new:g}"
