"""What stands in the program's source for an operand that has no name there."""

import ast
from dataclasses import replace

from gradscope.facts import Event, Operand, Phase
from gradscope.source import expression, operands, parsed

_LONGEST = 40  # characters: a longer expression is no name any more


def with_texts(event: Event) -> Event:
    """The event, whose unnamed operands are told by the expressions that the user wrote for them,
    where the op was not called inside a library."""
    place = event.blame.location
    if event.phase is Phase.BACKWARD and not event.saved:
        return event  # those are operands of an op inside the formula
    if place is None or event.blame.inner is not None or all(one.name for one in event.operands):
        return event
    source = parsed(place.file)
    node = expression(source, place) if source is not None else None
    if source is None or node is None:
        return event
    written = {
        role: source.of(given)
        for role, given in operands(source, node, event.op).items()
        if not isinstance(given, ast.Constant)
    }
    told = tuple(_with_text(one, written) for one in event.operands)
    return (
        replace(event, saved=told) if event.operands is event.saved else replace(event, inputs=told)
    )


def _with_text(one: Operand, written: dict[str, str]) -> Operand:
    text = written.get(one.role, "")
    fits = not one.name and "\n" not in text and len(text) <= _LONGEST
    return replace(one, text=text) if text and fits else one
