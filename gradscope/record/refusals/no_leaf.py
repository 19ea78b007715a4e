"""What is no leaf, or was taken for one, by what the frames of an exception hold."""

import ast
from collections.abc import Iterator
from itertools import permutations
from numbers import Number
from types import FrameType

import torch

from gradscope.facts import refusals
from gradscope.record.definitions import attribute, definition, function_of, span
from gradscope.record.refusals.exceptions import Raised, held, written_at
from gradscope.source.tree import last_name, parts


def computed_given(raised: Raised) -> refusals.ComputedGiven | None:
    """A tensor with a graph, among the parameters of an optimizer."""
    for optimizer, scope in raised.making:
        tensor = scope.get("param")
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            return refusals.ComputedGiven(
                **raised.at,
                optimizer=type(optimizer).__name__,
                name=raised.name(tensor),
                made=raised.context.call(tensor.grad_fn),
            )
    return None


def nothing_given(raised: Raised) -> refusals.NothingGiven | None:
    """No parameters: an iterator that is at its end, or a model that holds its own elsewhere."""
    if not raised.making:
        return None
    fields = {**raised.at, "optimizer": type(raised.making[0][0]).__name__}
    match raised.node:
        case ast.Call(args=[given, *_]) if isinstance(held(given, raised.frame), Iterator):
            return refusals.NothingGiven(**fields, consumed=True)
    raised.context.names.look(raised.frame)
    owners = list(raised.context.names.unregistered.values())
    return refusals.NothingGiven(
        **fields,
        unregistered=tuple(owner.name for owner in owners),
        location=definition(owners[0].path)[0] if owners else None,
    )


def copied_with_graph(raised: Raised) -> refusals.CopiedWithGraph | None:
    """A tensor that a forward has left on its module."""
    tensor, module = raised.copied, raised.copied_of
    held = vars(module) if module is not None else {}
    name = next((key for key, one in held.items() if one is tensor), None)
    if tensor is None or name is None:
        return None
    return refusals.CopiedWithGraph(
        **raised.at,
        name=raised.name(tensor) or name,
        module=type(module).__name__,
        attribute=name,
        location=attribute(type(module), name),
    )


def given_twice(raised: Raised) -> refusals.GivenTwice | None:
    """Parameters of one group that another one has as well, where one has all of the other's."""
    raised.context.names.look(raised.frame)
    for optimizer, scope in raised.making:
        groups = [*optimizer.param_groups, scope.get("param_group", {"params": ()})]
        by_id = [{id(one): one for one in group["params"]} for group in groups]
        for (whole, more), (part, fewer) in permutations(enumerate(by_id), 2):
            if fewer and fewer.keys() < more.keys():
                names = map(raised.name, fewer.values())
                return refusals.GivenTwice(
                    **raised.at,
                    optimizer=type(optimizer).__name__,
                    names=tuple(filter(None, names)),
                    whole=whole,
                    part=part,
                )
    return None


def read_as_array(raised: Raised) -> refusals.ReadAsArray | None:
    """A tensor with a graph that NumPy was given, or asked by its method."""
    match raised.node:
        case ast.Call(func=ast.Attribute(value=receiver, attr="numpy")):
            return refusals.ReadAsArray(**raised.at, name=raised.text(receiver))
        case ast.Call(args=given):
            for one in given:
                tensor = held(one, raised.frame)
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                    return refusals.ReadAsArray(**raised.at, name=raised.text(one))
    return None


def switched_off(raised: Raised) -> refusals.SwitchedOff | None:
    """What was told to require no gradient, and is computed."""
    match raised.node:
        case ast.Call(func=ast.Attribute(value=told)) | ast.Attribute(value=told):
            return refusals.SwitchedOff(**raised.at, name=raised.text(told))
    return None


def parameter_replaced(raised: Raised) -> refusals.ParameterReplaced | None:
    """A parameter in the place of which a tensor was to be set."""
    name, parameter = written_at(raised)
    is_one = isinstance(parameter, torch.nn.Parameter)
    return refusals.ParameterReplaced(**raised.at, name=name) if is_one else None


def saved_no_tensor(raised: Raised) -> refusals.SavedNoTensor | None:
    """What a custom forward was to save, and is no tensor. torch raises once that has returned."""
    frame = raised.frame
    match raised.node:
        case ast.Call(func=ast.Attribute(value=of, attr="apply"), args=given) if frame is not None:
            function = held(of, frame)
            forward = getattr(function, "forward", None)
            code = getattr(forward, "__code__", None)
            body = function_of(code) if code is not None else None
            if code is None or body is None:
                return None
            taken = (one.arg for one in body.args.args[1:])
            numbers = {
                name for name, one in zip(taken, given, strict=False) if _is_number(one, frame)
            }
            for call in parts(body, ast.Call):
                saved = [one.id for one in call.args if isinstance(one, ast.Name)]
                names = tuple(one for one in saved if one in numbers)
                if names and last_name(call.func) == "save_for_backward":
                    name, place = getattr(function, "__name__", ""), span(code, call)
                    return refusals.SavedNoTensor(
                        **raised.at, function=name, names=names, location=place
                    )
    return None


def _is_number(node: ast.expr, frame: FrameType) -> bool:
    value = node.value if isinstance(node, ast.Constant) else held(node, frame)
    return isinstance(value, Number | str)
