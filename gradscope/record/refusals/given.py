"""A call that is given what a tensor was computed from, where it was to be given the tensor."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from gradscope.facts import Location, refusals
from gradscope.record.definitions import source_of, span
from gradscope.record.refusals.exceptions import Raised, held
from gradscope.source import Source, binding, expression
from gradscope.source.tree import parts

_MOST_CALLS = 32  # that a result is followed back through
_AS_IT_IS = ("data", "mT", "T")  # attributes of a tensor that are no part of what holds it


def given_instead(raised: Raised, tensor: torch.Tensor) -> refusals.Given | None:
    """The first call behind what is differentiated, in the innermost function that has computed the
    tensor, and the arguments of all of them."""
    for frame, place in zip(raised.frames, raised.places, strict=True):
        source, asked = _written(frame, place)
        names = (one for one in parts(asked, ast.Name) if held(one, frame) is tensor)
        if source is not None and asked is not None and (name := next(names, None)) is not None:
            if (found := _behind_call(frame, source, asked, name)) is not None:
                return found
    return None


def without_gradient(raised: Raised) -> refusals.NotUsed | None:
    """Of a leaf whose gradient was read and is None, since the last pass has not reached it: as
    `given_instead`."""
    frame, passes = raised.frame, raised.notes.passes
    if frame is None or not passes or raised.place is None:
        return None
    place = passes[-1].place
    source, asked = _written(frame, place)
    if source is None or asked is None or place.function != raised.place.function:
        return None
    for read in parts(raised.node, ast.Attribute):
        name, leaf = read.value, held(read.value, frame)
        is_bare = isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad
        if read.attr == "grad" and isinstance(name, ast.Name) and is_bare and leaf.grad is None:
            given = _behind_call(frame, source, asked, name)
            if given is not None:
                at = {**raised.at, "step": max(raised.context.step - 1, 0)}  # that backward is over
                return refusals.NotUsed(**at, name=name.id, given=given, location=given.call)
    return None


def _written(frame: FrameType, place: Location) -> tuple[Source | None, ast.AST | None]:
    source = source_of(frame.f_code.co_filename)
    return source, expression(source, replace(place, file=source.file)) if source else None


def _behind_call(
    frame: FrameType, source: Source, asked: ast.AST, name: ast.Name
) -> refusals.Given | None:
    """The first of the calls behind an expression that is given what a name was computed from."""
    made, tensor = binding(source, name), held(name, frame)
    if made is None or made.value is None:
        return None
    alike = (one for one in _read(made.value) if _is_alike(held(one, frame), tensor))
    originals = [one for one in alike if source.of(one) != name.id]
    calls = _behind(source, asked, name.id)
    later = [one for one in calls if one.lineno > (made.statement.end_lineno or 0)]
    return _first(frame, source, later, originals, name.id)


def _first(
    frame: FrameType,
    source: Source,
    calls: Iterable[ast.Call],
    originals: Iterable[ast.expr],
    name: str,
) -> refusals.Given | None:
    found = {
        argument: (call, original)
        for call in calls
        for argument in (*call.args, *(key.value for key in call.keywords))
        for original in originals
        if source.of(argument) in (source.of(original), _holder(source, original))
    }
    if not found:
        return None
    call, original = min(found.values(), key=lambda one: (one[0].lineno, one[0].col_offset))
    arguments = (argument for argument, (_, one) in found.items() if one is original)
    at = tuple(span(frame.f_code, one) for one in arguments)
    return refusals.Given(span(frame.f_code, call), at, source.of(original), name)


def _read(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression is computed from: `batch["x"]` of `wrap(batch["x"] * 2)`."""
    match node:
        case ast.Attribute(value=value, attr=name) if name in _AS_IT_IS:
            yield from _read(value)
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield node
        case ast.Call(func=function, args=args, keywords=keywords):
            own = [function.value] if isinstance(function, ast.Attribute) else []
            for one in (*own, *args, *(key.value for key in keywords)):
                yield from _read(one)
        case _:
            for part in ast.iter_child_nodes(node):
                yield from _read(part)


def _behind(source: Source, asked: ast.AST, name: str) -> Iterator[ast.Call]:
    """The calls in an expression, and those that have made what it reads beside a name."""
    waiting, seen = [asked], set[ast.AST]()
    while waiting and len(seen) < _MOST_CALLS:
        node = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        yield from (one for one in parts(node, ast.Call) if one is not asked)
        read = (binding(source, one) for one in parts(node, ast.Name) if one.id != name)
        given = (one.value or one.statement for one in read if one is not None)
        waiting += [one for one in given if not isinstance(one, ast.FunctionDef | ast.ClassDef)]


def _holder(source: Source, node: ast.expr) -> str:
    """`batch` of `batch["x"]` and of `batch.x`."""
    match node:
        case ast.Attribute(value=holder) | ast.Subscript(value=holder, slice=ast.Constant(str())):
            return source.of(holder)
    return ""


def _is_alike(value: Any, tensor: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == tensor.shape
