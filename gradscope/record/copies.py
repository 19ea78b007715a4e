"""In-place ops whose derivative needs what they overwrite: `div_`, `log_`, `pow_`, `atan2_`, ...

Autograd first makes the op's node, then saves a `clone` of the operand that nobody wrote, which
may take a node and its sequence number too, and only then runs the op: the numbers of the op's
call were given out before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from gradscope.record.journal import Note
from gradscope.record.modules import ModuleFrame
from gradscope.record.schema import OpInfo
from gradscope.record.sites import note_site


def numbers_taken(
    seq: int,
    info: OpInfo,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    calls: Mapping[int, Note],
    frame: FrameType,
    module: ModuleFrame | None = None,
) -> range:
    """The sequence numbers below `seq` (the counter) that belong to the call of an in-place op,
    which `frame` made, the op's own nodes first. Empty where autograd made no clone for it."""
    last = calls.get(seq - 1)
    if last is None or last.info.name != "clone":
        return range(0)
    site = note_site(frame, module)

    def is_own_clone(number: int) -> bool:
        note = calls.get(number)
        return note is not None and note.info is last.info and (note.user, note.inner) == site

    clones = 0
    while is_own_clone(seq - 1 - clones):
        clones += 1
    # A clone of what needs no gradient makes no node: its call was noted under the op's number.
    written = info.written_tensors(args, kwargs)
    nodes = clones if any(tensor.requires_grad for tensor in written) else 0
    taken = range(seq - clones - nodes, seq)
    return taken if not any(number in calls for number in taken[:nodes]) else range(0)
