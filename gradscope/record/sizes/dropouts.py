"""Dropout that a function does, as `F.dropout(x)`, in a model that is in eval mode: nothing but an
argument tells the function of the mode."""

import ast
from collections.abc import Iterable, Iterator
from types import FrameType

from torch import nn

from gradscope.facts import Drop, KeptDropout, Location
from gradscope.record.context import RunContext
from gradscope.record.held import CALL, is_within
from gradscope.record.names import Names
from gradscope.record.sites import USER, instruction_of, kind_of, note_site, place_of
from gradscope.source import expression, parsed
from gradscope.source.arguments import argument, spelled

_MOST = 32  # places
_MODE = "training", 2  # F.dropout(input, p, training)
_SHARE = "dropout_p", 4  # F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p)
_BY_MODE = ("dropout", "dropout1d", "dropout2d", "dropout3d")


class Dropouts:
    """Told of each op that draws random numbers, in the steps that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        # By instruction, with the outermost module around it and the last step.
        self._found: dict[object, tuple[Drop | None, nn.Module, int]] = {}

    def note(self, frame: FrameType) -> None:
        context, running = self._context, self._context.module
        if running is None or running.module.training or context.in_optimizer or not context.step:
            return
        asked = _asked(frame)
        site, _ = note_site(asked) if asked is not None else ((), ())
        key, place = instruction_of(site), place_of(site)
        if asked is None or place is None or (len(self._found) >= _MOST and key not in self._found):
            return
        while running.outer is not None:
            running = running.outer
        known = self._found.get(key)
        drop = known[0] if known is not None else _drop(place, asked)
        self._found[key] = drop, running.module, context.step

    def facts(self, trained: Iterable[nn.Module], names: Names) -> Iterator[KeptDropout]:
        """Of each model that was trained in train mode, together."""
        for model in trained:
            found = [
                (drop, step)
                for drop, root, step in self._found.values()
                if drop is not None and (is_within(root, model) or is_within(model, root))
            ]
            if found:
                drops, steps = zip(*found, strict=True)
                yield KeptDropout(names.called(model), drops, max(steps))


def _asked(frame: FrameType | None) -> FrameType | None:
    """The user's frame that called the function; None where a module of a library has."""
    while frame is not None and kind_of(frame.f_code) != USER:
        if frame.f_code is CALL:
            return None
        frame = frame.f_back
    return frame


def _drop(place: Location, frame: FrameType) -> Drop | None:
    """What the call there leaves out, or gives in any mode. None of a call that is told the mode,
    and of other random numbers."""
    source = parsed(place.file)
    call = expression(source, place) if source is not None else None
    if source is None or not isinstance(call, ast.Call):
        return None
    op = spelled(source, call).name
    by_mode = op in _BY_MODE
    name, position = _MODE if by_mode else _SHARE
    is_given = argument(call, name, position) is not None
    if is_given is by_mode or not (by_mode or op == "scaled_dot_product_attention"):
        return None
    first = next(iter(frame.f_code.co_varnames), "")
    owner = frame.f_locals.get(first)
    is_told = isinstance(owner, nn.Module) and not owner.training
    return Drop(op, name, position, place, f"{first}.training" if is_told else "")
