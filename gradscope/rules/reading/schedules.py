"""How often a schedule of learning rates was moved on."""

from gradscope.facts import Usage
from gradscope.rules import cutoffs


def moves_each(usage: Usage) -> int:
    """How often the schedule was moved on for each step, also those that a scaler has left out;
    1 where that is no whole number, but for a cycle that is cut off, and a few."""
    schedule, skipping = usage.schedule, usage.skipping
    moves = schedule.moves if schedule is not None else 0
    asked = max(usage.updates, skipping.calls if skipping is not None else 0)
    times = round(moves / asked) if asked else 0
    is_whole = abs(moves - times * asked) <= max(times - 1, cutoffs.FEW_MOVES * moves)
    return times if times > 1 and is_whole else 1
