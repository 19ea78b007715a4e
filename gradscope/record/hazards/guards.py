"""Whether something upstream keeps an operand from its op's singular point."""

from __future__ import annotations

from typing import Any

from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.journal import Note

_DEEPEST = 8  # ops from a guard to what it guards
_SMALL = 0.05  # an epsilon; a number next to 1 or 0 in a clamp


def is_guarded(node: Any, distance: float, context: RunContext, depth: int = _DEEPEST) -> bool:
    """Whether the operand that `node` made cannot come any nearer than `distance`, as far as the
    graph shows: an epsilon was added to something that is not negative, or a clamp holds it."""
    if node is None or depth == 0:
        return False
    note = context.call_of_node(node)
    name = note.info.name if note is not None else ""
    # What whoever wrote it has chosen to replace what must not come through.
    if has(name, Trait.FILLS) or (has(name, Trait.BOUNDS) and (_by_tensor(note) or _holds(node))):
        return True
    constant = abs(note.constant) if note is not None and note.constant is not None else 0.0
    # Where it came nearer than the epsilon, what that was added to was negative: no guard at all.
    if 0 < constant <= _SMALL and distance >= 0.99 * min(constant, 1.0):
        return True
    below = [one for one, _ in node.next_functions if one is not None]
    if has(name, Trait.SUBTRACTS) and len(below) > 1:
        return False  # the difference of two guarded numbers may be anything
    guards = (is_guarded(one, distance, context, depth - 1) for one in below)
    return bool(below) and (all(guards) if name == "mul" else any(guards))


def has_constant_added(node: Any, context: RunContext) -> bool:
    """Whether a tensor without gradient was added to a matrix: `a + eps * torch.eye(n)`."""
    note = context.call_of_node(node) if node is not None else None
    if note is None or not note.info.shifts:
        return False
    return any(below is None for below, _ in node.next_functions)


def _by_tensor(note: Note | None) -> bool:
    return note is not None and "Tensor" in note.info.overload


def _holds(node: Any) -> bool:
    """Whether a clamp ends just beside 0, 1 or -1, and not at it: `clamp(min=0)` guards nothing."""
    ends = [getattr(node, name, None) for name in ("_saved_min", "_saved_max")]
    numbers = [float(end) for end in ends if isinstance(end, int | float)]
    return any(0 < abs(abs(number) - at) <= _SMALL for number in numbers for at in (0.0, 1.0))
