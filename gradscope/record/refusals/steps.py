"""What an optimizer refuses in a step of its own: its gradients, or the state that it was given."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.facts import Location, refusals
from gradscope.record.definitions import body_of, span
from gradscope.record.held import alive
from gradscope.record.names import Names
from gradscope.record.optimizers import parameters_of
from gradscope.record.refusals.exceptions import Raised, stepping
from gradscope.record.sites import USER, kind_of

_OF_THEIR_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def refused(raised: Raised) -> refusals.AnyRefusal | None:
    """By the optimizer whose step has raised."""
    optimizer, names, notes = stepping(raised.error), raised.context.names, raised.notes
    names.look(raised.frame)
    at = {**raised.at, "location": notes.place_of(optimizer), "optimizer": type(optimizer).__name__}
    return (
        _layout(optimizer, names, at)
        or _setting(optimizer, at, raised.frames)
        or _state(optimizer, names, {**at, "loaded": notes.loaded_at(optimizer)})
    )


def _layout(optimizer: Any, names: Names, fields: dict[str, Any]) -> refusals.LayoutRefused | None:
    """Gradients that are sparse; for the optimizer that takes such alone, those that are dense."""
    held = {one: one.grad for one in parameters_of(optimizer) if one.grad is not None}
    sparse = [one for one, grad in held.items() if grad.layout is not torch.strided]
    takes_sparse = isinstance(optimizer, torch.optim.SparseAdam)
    refused = [one for one in held if all(one is not of for of in sparse)]
    refused = refused if takes_sparse else sparse
    if not refused:
        return None
    owners = [names.owners.get(id(one)) for one in refused]
    paths = [one.path for one in owners if one is not None]
    choosing = [path for path in paths if hasattr(path[-1][1], "sparse")]
    places = [names.made(path)[0] for path in choosing]
    return refusals.LayoutRefused(
        **fields,
        sparse=not takes_sparse,
        names=tuple(one.name for one in owners if one is not None),
        held=len(held),
        layers=tuple(filter(None, places)) if len(choosing) == len(refused) else (),
    )


def _setting(
    optimizer: Any, fields: dict[str, Any], frames: Sequence[FrameType]
) -> refusals.ComplexSetting | None:
    """A number that is complex, as Python makes it of a negative one to a power with a fraction."""
    for group in optimizer.param_groups:
        for name, value in group.items():
            if isinstance(value, complex):
                running = (frame.f_code for frame in frames)
                powers = _powers(_schedules(optimizer)) or _powers(running)
                place = {"location": powers[0] if len(powers) == 1 else None}
                return refusals.ComplexSetting(
                    **fields | place,
                    name=str(name),
                    real=value.real,
                    imaginary=value.imag,
                )
    return None


def _schedules(optimizer: Any) -> Iterator[CodeType]:
    """The program's functions that compute the rates of an optimizer."""
    for schedule in alive(torch.optim.lr_scheduler.LRScheduler):
        if getattr(schedule, "optimizer", None) is optimizer:
            functions = (type(schedule).get_lr, *getattr(schedule, "lr_lambdas", ()))
            codes = (getattr(one, "__code__", None) for one in functions)
            yield from (code for code in codes if code is not None and kind_of(code) == USER)


def _powers(codes: Iterable[CodeType]) -> list[Location]:
    """The powers with a fraction that functions themselves compute, each once."""
    found = dict[Location, None]()
    for code in codes:
        waiting = [one for one in (body_of(code),) if one is not None]
        for node in waiting:
            inner = ast.iter_child_nodes(node)
            waiting += (one for one in inner if not isinstance(one, _OF_THEIR_OWN))
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                power = node.right.value if isinstance(node.right, ast.Constant) else None
                if not isinstance(power, int):
                    found[span(code, node)] = None
    return list(found)


def _state(optimizer: Any, names: Names, fields: dict[str, Any]) -> refusals.StateOfAnother | None:
    """The state that an optimizer was loaded with, where its shapes are not the parameters'."""
    parameters = list(parameters_of(optimizer))
    for key in dict.fromkeys(key for one in parameters for key in optimizer.state.get(one, ())):
        kept = {one: optimizer.state.get(one, {}).get(key) for one in parameters}
        both = [(one, of) for one, of in kept.items() if isinstance(of, torch.Tensor) and of.dim()]
        wrong = next(((one, of) for one, of in both if one.shape != of.shape), None)
        in_order = sorted(one.shape for one, _ in both) == sorted(of.shape for _, of in both)
        # What none of them has in its parameter's shape is of another kind: rows, all in one.
        if wrong is None or not (in_order or any(one.shape == of.shape for one, of in both)):
            continue
        owner = names.owners.get(id(wrong[0]))
        return refusals.StateOfAnother(
            **fields,
            name=owner.name if owner is not None else "",
            shape=tuple(wrong[0].shape),
            key=str(key),
            kept=tuple(wrong[1].shape),
            in_order=in_order,
        )
    return None
