"""How a program can clear its gradients, with the names that it has where it asks for backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, FunctionType
from typing import Any

import torch

from gradscope.facts import Clearing
from gradscope.record.held import parts_of, variables
from gradscope.record.optimizers import Work, parameters_of
from gradscope.record.sites import in_torch, note_site, resolve, user_frames

_VARIABLES = ("p", "parameter", "leaf", "tensor")  # of a loop that we write


def before_backward(frame: FrameType, leaves: Sequence[torch.Tensor]) -> Clearing | None:
    """For the line above the call of a backward, which `frame` runs."""
    return _clearing(frame, leaves, after=False)


def after_step(work: Work, leaves: Sequence[torch.Tensor]) -> Clearing | None:
    """For the line below the call of a step."""
    return _clearing(work.frame, leaves, after=True)


def _clearing(frame: FrameType, leaves: Sequence[torch.Tensor], *, after: bool) -> Clearing | None:
    """None where no names of the user's lead to the leaves, or where a library makes the call, as
    a trainer does, whose loop is not in the user's file."""
    frames = user_frames(frame)
    if not frames or not leaves or not all(in_torch(code) for code, _ in note_site(frame)[1]):
        return None
    lines = _lines(frames[0], {id(leaf) for leaf in leaves})
    place = resolve(frames[0].f_code, frames[0].f_lasti)
    return Clearing(lines, place, after) if lines else None


def _lines(frame: FrameType, wanted: set[int]) -> tuple[str, ...]:
    held = list(_held(frame))
    for kind, holds in _HOLDERS:
        # The smallest of those that hold all: an optimizer of one model, and not of two.
        found = [
            (len(inside), place, name)
            for place, (name, value) in enumerate(held)
            if isinstance(value, kind) and wanted <= (inside := {id(one) for one in holds(value)})
        ]
        if found:
            _, _, name = min(found)
            if kind in (torch.optim.Optimizer, torch.nn.Module):
                return (f"{name}.zero_grad()",)
            values = f"{name}.values()" if kind is dict else name
            taken = {*frame.f_locals, *frame.f_globals}
            one = next((free for free in _VARIABLES if free not in taken), _VARIABLES[0])
            return (f"for {one} in {values}:", f"    {one}.grad = None")
    optimizers = [pair for pair in held if isinstance(pair[1], torch.optim.Optimizer)]
    together = _covering(optimizers, parameters_of, wanted)
    if together:
        return tuple(f"{name}.zero_grad()" for name in together)
    return tuple(f"{name}.grad = None" for name in _covering(held, lambda value: (value,), wanted))


def _covering(
    held: Iterable[tuple[str, Any]], holds: Callable[[Any], Iterable[Any]], wanted: set[int]
) -> list[str]:
    """The first names that hold all that is wanted, each something that those before it do not;
    none where they do not hold it all."""
    names, left = [], set(wanted)
    for name, value in held:
        inside = left & {id(one) for one in holds(value)}
        if inside:
            names.append(name)
            left -= inside
    return names if not left else []


_HOLDERS: tuple[tuple[Any, Callable[[Any], Iterator[Any]]], ...] = (
    (torch.optim.Optimizer, parameters_of),
    (torch.nn.Module, lambda module: module.parameters()),
    ((list, tuple), iter),
    (dict, lambda values: iter(values.values())),
)


def _held(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """What the names of a frame hold, and what is one step away from them: as an attribute, or in a
    container."""
    scopes = [frame.f_locals, frame.f_globals]
    named = (
        pair for scope in scopes[: 1 if scopes[0] is scopes[1] else 2] for pair in variables(scope)
    )
    found = [(name, value) for name, value in named if name.isidentifier()]
    yield from found
    for name, value in found:
        if not isinstance(value, FunctionType):  # what it encloses has no name here
            yield from parts_of(name, value)
