"""How rules put facts into words: counts with their total, values, names, places."""

import ast
import math
from collections.abc import Iterable, Iterator, Sequence

from gradscope.facts import Call, Event, Growth, Operand, Subject, Symptom, Trouble, plural, text_of
from gradscope.facts import number as figures
from gradscope.ops import Edge
from gradscope.ops.display import spelled as spelled
from gradscope.ops.dtypes import Margin

_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_NAMES_SHOWN = 3
_VALUES_SHOWN = 8


def number(value: float | None) -> str:
    """A measured number, "unknown" where nobody measured it."""
    return "unknown" if value is None else figures(float(value))


def series(values: Sequence[float]) -> str:
    """Numbers in a row; a long one by its first and last, with how many there are."""
    shown = [figures(value, 3) for value in values]
    if len(shown) > _VALUES_SHOWN:
        half = _VALUES_SHOWN // 2
        shown = [*shown[:half], "...", *shown[-half:]]
        return f"{', '.join(shown)} ({len(values):,} in all)"
    return ", ".join(shown)


def place(index: tuple[int, ...]) -> str:
    """An index as it is written behind a tensor: `[0, 3]`; empty for a single number."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def of_total(bad: int, numel: int, noun: str = "element") -> str:
    """ "1 of 5 elements": a count is never given without its total."""
    return f"{bad:,} of {plural(numel, noun)}"


def bad_of(event: Event) -> str:
    """How many elements of the event's result are bad, of how many."""
    return of_total(event.bad, event.numel)


def at_bad(event: Event) -> str:
    """ " at 1 of 5 elements"; nothing of a single number."""
    return f" at {bad_of(event)}" if event.numel > 1 else ""


def name(operand: Operand | None, fallback: str = "the operand") -> str:
    """What the user calls a tensor in backquotes, else the words of `fallback`."""
    return f"`{operand.called}`" if operand and operand.called else fallback


def unnamed(op: str, edge: Edge) -> str:
    """The operand that lies on an edge, where the program has no name for it."""
    is_divisor = edge.argument == "other" and edge.cure.margin is Margin.DENOMINATOR
    return "the denominator" if is_divisor else f"the operand of `{spelled(op)}`"


def source(operand: Operand | None, role: str) -> str:
    """What stands for the operand in a line of code: its name, its expression, or a letter."""
    letters = {"self": "x", "input": "x", "other": "y", "exponent": "p"}
    if operand is None or not operand.called:
        return letters.get(role, role)
    is_atom = operand.name or isinstance(ast.parse(operand.text, mode="eval").body, _ATOMS)
    return operand.called if is_atom else f"({operand.text})"


def line(call: Call | None, near: Call) -> str:
    """ " (line 4)": where a call stands, " (model.py:4)" if it is in another file than `near`, the
    call that the finding points at; empty where that is unknown."""
    place = call.location if call is not None else None
    if place is None:
        return ""
    if near.location is None or place.file == near.location.file:
        return f" (line {place.line})"
    return f" ({place})"


def call(one: Call, near: Call) -> str:
    """ "`exp` (line 4)": a call with its place, as `line` tells it."""
    return f"`{spelled(one.op)}`{line(one, near)}"


def cancelled(branches: Sequence[Call], near: Call) -> str:
    """The sentence about a sum of gradients in which inf met the inf of another branch."""
    calls = " and ".join(call(one, near) for one in branches)
    return (
        f"The gradients of {calls} are infinite with opposite signs, and backward adds them:"
        " inf - inf is NaN."
    )


def too_late(event: Event, added: Call | None) -> str:
    """Of an epsilon on the wrong side of the op that breaks: `x.rsqrt() + eps`."""
    if added is None:
        return ""
    place = line(added, event.blame)
    return f" What is added after `{spelled(event.op)}`{place} comes too late."


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(f"`{one}`" for one in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def bad_word(nan: int, inf: int) -> str:
    if nan and inf:
        return "NaN or inf"
    return "NaN" if nan else "inf"


def outcome(output: Operand | None) -> str:
    """What an op gave: "NaN", "inf", "-inf" at the element that was measured, else over all."""
    if output is None:
        return "NaN"
    if output.at is not None and not math.isfinite(output.at):
        return "NaN" if math.isnan(output.at) else text_of(output.at)
    return bad_word(output.nan, output.posinf + output.neginf)


_NOUNS = {
    Subject.GRADIENT: "gradient",
    Subject.PARAMETER: "parameter",
    Subject.LOSS: "loss",
    Subject.VALUE: "value",
    Subject.SENT: "value",
}


def symptom(one: Symptom) -> str:
    count, word = of_total(one.bad, one.numel), _word(one)
    match one.subject:
        case Subject.GRADIENT:
            return f"gradient of `{one.tensor}` is {word} at {count}"
        case Subject.PARAMETER:
            return f"parameter `{one.tensor}` is {word} at {count} after the step"
        case Subject.VALUE:
            return f"`{one.tensor}` is {word} at {count}, over which the program raises"
        case Subject.SENT:
            return f"what goes to another rank is {word} at {count}"
        case Subject.LOSS:
            return f"the loss is {word}"


def symptoms(many: Iterable[Symptom]) -> str:
    """All symptoms of one root as one phrase: the first is named, the others are a count."""
    many = tuple(many)
    if not many:
        return "nothing that was measured is bad yet"
    if len(many) == 1:
        return symptom(many[0])
    if len({one.subject for one in many}) > 1:
        return f"{symptom(many[0])}, and with it {plural(len(many) - 1, 'tensor')}"
    word = " or ".join(sorted({_word(one) for one in many}))
    noun = _NOUNS[many[0].subject]
    return f"{plural(len(many), noun)} hold {word}, `{many[0].tensor}` first"


def _word(one: Symptom) -> str:
    return "NaN" if one.trouble is Trouble.NAN else str(one.trouble)


def profile(
    growth: Growth, of: str = "the gradient", starts: str = "the loss first"
) -> Iterator[str]:
    """How norms change along the way through a model: those at five places."""
    if growth.axis == "fused":
        came, goes = figures(growth.norms[0], 3), figures(growth.norms[-1], 3)
        yield f"a gradient of norm {came} comes in, {goes} goes out"
        return
    last = len(growth.norms) - 1
    places = sorted({round(last * part / 4) for part in range(5)})
    shown = ", ".join(f"{figures(growth.norms[place], 3)} ({place + 1})" for place in places)
    yield f"norm of {of} by {growth.unit}, {starts}: {shown}"
    extent = f"from x{growth.low:.3g} to x{growth.high:.3g}"
    yield f"fitted x{growth.factor:.4g} per {growth.unit}, {extent}"
    if growth.activation_factor:
        first, final = figures(growth.activations[-1], 3), figures(growth.activations[0], 3)
        change = f"{first} to {final}, x{1 / growth.activation_factor:.3g} per {growth.unit}"
        yield f"norm of the activations there, on the way forward: {change}"
