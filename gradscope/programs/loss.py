"""Function targets, and models with a loss: called with their inputs, then taken backward."""

import inspect
import math
import shlex
import types
from collections.abc import Callable, Iterable, Mapping
from traceback import walk_tb
from typing import Any

import torch

from gradscope.config import Input
from gradscope.errors import GradscopeError, did_you_mean
from gradscope.programs.load import eval_expression, evaluate
from gradscope.programs.run_options import UNCHANGED, Conditions
from gradscope.programs.targets import Function, Parts
from gradscope.record.sites import OURS, kind_of

SEED = 0
NAMES: dict[str, Any] = {
    "torch": torch,
    "nn": torch.nn,
    "F": torch.nn.functional,
    "math": math,
    "inf": math.inf,
    "nan": math.nan,
}


Run = Callable[[Callable[[], bool]], None]  # is told how to ask whether a backward ran


def prepare_function(
    target: Function, conditions: Conditions = UNCHANGED
) -> tuple[Run, dict[str, Any]]:
    """Make the inputs, given by name; running calls the function and goes backward from its loss.

    A function that goes backward itself (a training loop) may return anything.
    """
    function = evaluate(target.reference, NAMES)
    if not callable(function):
        raise GradscopeError(
            f"{target.name} is a {type(function).__name__} and cannot be called",
            help="name a function that returns the loss",
        )
    scope = NAMES | getattr(function, "__globals__", {})
    inputs = conditions.moved(make_inputs(target.inputs, scope, names_taken(function)))
    _check_inputs(target, function, inputs)
    _forget_gradients((function, *scope.values(), *inputs.values()))

    def run(went_backward: Callable[[], bool]) -> None:
        result = call(target.name, function, **inputs)
        if not went_backward():
            _go_backward(result, target.name)

    return run, inputs


def prepare_parts(target: Parts, conditions: Conditions = UNCHANGED) -> Run:
    """Make model, batch and loss; running goes forward through them and backward.

    A batch (x, ..., y) is the model's inputs and the loss's target; a mapping is the model's
    keyword arguments, without the target where a loss is named. A loss whose first parameter is
    called `model` is given the model and the batch instead.
    """
    batch, compute = load_parts(target, conditions)
    shown = str(target.loss) if target.loss is not None else target.name
    return lambda _: _go_backward(compute(batch), shown)


def load_parts(
    target: Parts, conditions: Conditions = UNCHANGED
) -> tuple[Any, Callable[[Any], Any]]:
    """The batch, and what makes the loss of it or of another batch like it."""
    names = NAMES | make_inputs(target.inputs, dict(NAMES), lambda name: True)
    model = conditions.moved(_instance(evaluate(target.model, names), target.model))
    batch = conditions.moved(_first_batch(evaluate(target.batch, names), target.batch))

    def apply(arguments: list[Any], keywords: dict[str, Any]) -> Any:
        return call(str(target.model), model, *arguments, **keywords)

    if target.loss is None:
        return batch, lambda batch: apply(*_split(batch))
    shown = str(target.loss)
    loss = conditions.moved(_instance(evaluate(target.loss, names), target.loss))
    required = _required(loss)
    if required[:1] == ["model"]:
        return batch, lambda batch: call(shown, loss, model, batch)

    def compute(batch: Any) -> Any:
        arguments, keywords = _split(batch)
        expected = _take_target(arguments, keywords)
        output = apply(arguments, keywords)
        return call(shown, loss, *((output,) if len(required) == 1 else (output, expected)))

    return batch, compute


def make_inputs(
    inputs: Iterable[Input], scope: dict[str, Any], accepts: Callable[[str], bool]
) -> dict[str, Any]:
    """The inputs by name, made from a fixed seed; the program's own random state is untouched."""
    made: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for given in inputs:
            if given.optional and not accepts(given.name):
                continue
            value = eval_expression(given.expression, scope | made, given.shown)
            made[given.name] = _with_grad(value, given)
    return made


def _forget_gradients(held: Iterable[Any]) -> None:
    """A script that is imported for one of its functions trains as it goes, and its gradients
    would be added to those of the function."""
    for value in held:
        if isinstance(value, torch.nn.Module):
            value.zero_grad()
        elif isinstance(value, torch.Tensor) and value.is_leaf:
            value.grad = None


def _go_backward(result: object, name: str) -> None:
    loss: Any = loss_of(result, name)
    loss.backward()


def loss_of(result: object, name: str) -> torch.Tensor:
    """The scalar to go backward from, or GradscopeError with what is wrong about it."""
    loss = result
    if isinstance(result, Mapping):
        loss = result.get("loss")
    elif hasattr(result, "loss"):
        loss = result.loss
    elif isinstance(result, tuple | list) and result:
        loss = result[0]
    if not isinstance(loss, torch.Tensor):
        raise GradscopeError(
            f"{name} returned {_described(result)}, which holds no loss",
            help="return the loss: a tensor, the first of a tuple, or `loss` of a dict or object",
        )
    if loss.numel() != 1:
        raise GradscopeError(
            f"the loss of {name} is not a scalar: its shape is {tuple(loss.shape)}",
            help="return its .mean() or .sum()",
        )
    if not loss.requires_grad:
        raise GradscopeError(
            f"the loss of {name} needs no gradient: nothing that it depends on requires one",
            help="give a floating input (--input NAME=EXPR), and look for detach() or no_grad()",
        )
    return loss


def call(shown: str, given: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """Call what the user named. Where the call itself fails, and no line of Python in it, nobody
    but the user can say it right."""
    try:
        return given(*arguments, **keywords)
    except Exception as error:
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]
        if any(kind_of(frame.f_code) != OURS for frame in frames):
            raise
        raise GradscopeError(
            f"{shown} cannot be called like this: {type(error).__name__}: {error}",
            help=f"it was given {_counted(arguments, keywords)}",
        ) from error


def _counted(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    """`2 arguments (Tensor, Tensor) and x, y by name`."""
    kinds = ", ".join(type(one).__name__ for one in arguments)
    places = [f"{len(arguments)} argument{'s' * (len(arguments) != 1)} ({kinds})"] * bool(arguments)
    named = [f"{', '.join(keywords)} by name"] * bool(keywords)
    return " and ".join(places + named) or "no argument"


def _with_grad(value: Any, given: Input) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_leaf:
        return value
    wanted = given.requires_grad
    if wanted is None and "requires_grad" in given.expression:
        return value
    able = value.is_floating_point() or value.is_complex()
    return value.requires_grad_(able if wanted is None else wanted)


def names_taken(function: Callable[..., Any]) -> Callable[[str], bool]:
    parameters = _parameters(function)
    anything = parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return lambda name: anything or name in (parameters or {})


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """The parameters by name; a module's are its forward's. None for a builtin without any."""
    if isinstance(function, torch.nn.Module):
        function = function.forward
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _required(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, parameter in (_parameters(function) or {}).items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _check_inputs(
    target: Function, function: Callable[..., Any], inputs: Mapping[str, Any]
) -> None:
    name = target.name
    missing = [needed for needed in _required(function) if needed not in inputs]
    if missing:
        several = f"inputs {', '.join(missing)}" if len(missing) > 1 else f"an input {missing[0]}"
        raise GradscopeError(
            f"{name} needs {several} that nobody gave",
            help=" ".join(f"--input {shlex.quote(f'{one}=torch.randn(8)')}" for one in missing),
        )
    accepts = names_taken(function)
    for given in inputs:
        if not accepts(given):
            known = _parameters(function) or {}
            hint = did_you_mean(given, known)
            place = next(one.place for one in target.inputs if one.name == given)
            raise GradscopeError(
                f"{place}{': ' if place else ''}{name} takes no input {given}",
                help=f"{hint} it takes {', '.join(known) or 'none'}".lstrip(),
            )


def _instance(value: Any, reference: object) -> Callable[..., Any]:
    """A class is called without arguments, so that `--model net.py:Net` is enough; so is a function
    that takes none and makes the model."""
    if isinstance(value, type) and (needed := _required(value)):
        raise GradscopeError(
            f"{reference} needs {', '.join(needed)} to be made",
            help=f"write them out: '{reference}({', '.join(f'{n}=...' for n in needed)})'",
        )
    is_maker = isinstance(value, types.FunctionType) and not _parameters(value)
    if isinstance(value, type) or is_maker:
        value = call(str(reference), value)
    if not callable(value):
        raise GradscopeError(
            f"{reference} is a {type(value).__name__} and cannot be called",
            help="name a module, a class of one, or a function",
        )
    return value  # type: ignore[no-any-return]


def _first_batch(value: Any, reference: object) -> Any:
    """A function's result, the first item of a loader, or the value itself."""
    if isinstance(value, types.FunctionType):
        value = call(str(reference), value)
    if isinstance(value, torch.Tensor | tuple | list | Mapping):
        return value
    if hasattr(value, "__iter__"):
        return next(iter(value))
    return value[0] if hasattr(value, "__getitem__") else value


def _split(batch: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(batch, Mapping):
        return [], dict(batch)
    return (list(batch), {}) if isinstance(batch, tuple | list) else ([batch], {})


def _take_target(arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """The target is taken out of what the model is given; one tensor alone is its own target."""
    if keywords:
        for name in ("target", "targets", "labels", "label", "y"):
            if name in keywords:
                return keywords.pop(name)
        return None
    return arguments.pop() if len(arguments) > 1 else arguments[0]


def _described(result: object) -> str:
    if isinstance(result, Mapping):
        return f"a {type(result).__name__} with {', '.join(map(str, result)) or 'nothing'}"
    return "None" if result is None else f"a {type(result).__name__}"
