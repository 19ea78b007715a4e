"""The samples of torch's own test databases, each as a program that can be run again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

_STEPS = 3  # updates of each optimizer
_NOTHING_TO_COMPARE = ("empty", "resize")  # what these give is whatever lay in memory

Results = list[torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Sample:
    """`run` makes everything anew and returns all that came out: values, then gradients."""

    name: str
    run: Callable[[], Results]


def operators(dtype: torch.dtype, most: int, every: int = 1) -> Iterator[Sample]:
    """Up to `most` samples of every so many entries, forward and backward."""
    for info in op_db[::every]:
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        if any(word in info.name for word in _NOTHING_TO_COMPARE):
            continue
        if not info.supports_dtype(dtype, "cpu"):
            continue
        wants_grad = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
        try:
            found = list(islice(info.sample_inputs("cpu", dtype, requires_grad=wants_grad), most))
        except (RuntimeError, NotImplementedError, TypeError):
            continue  # the database itself cannot make them here
        for sample in found:
            yield Sample(name, _op(info, sample))


def _op(info: Any, sample: Any) -> Callable[[], Results]:
    def run() -> Results:
        given, args, kwargs = fresh((sample.input, sample.args, sample.kwargs))
        return _and_backward(info(given, *args, **kwargs), tensors((given, args, kwargs)))

    return run


def modules(dtype: torch.dtype, most: int, every: int = 1) -> Iterator[Sample]:
    for info in module_db[::every]:
        if dtype not in info.dtypes:
            continue
        for training in (True, False):
            try:
                found = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=True, training=training
                )
            except (RuntimeError, NotImplementedError, TypeError):
                continue
            for given in islice(found, most):
                yield Sample(f"nn.{info.name}", _module(info.module_cls, given, dtype, training))


def _module(cls: Any, given: Any, dtype: torch.dtype, training: bool) -> Callable[[], Results]:
    def run() -> Results:
        made = given.constructor_input
        module = cls(*fresh(made.args), **fresh(made.kwargs)).to(dtype).train(training)
        args, kwargs = fresh((given.forward_input.args, given.forward_input.kwargs))
        leaves = [*module.parameters(), *tensors((args, kwargs))]
        return [*_and_backward(module(*args, **kwargs), leaves), *module.buffers()]

    return run


def optimizers(dtype: torch.dtype, most: int) -> Iterator[Sample]:
    for info in optim_db:
        for given in islice(info.optim_inputs_func("cpu"), most):
            yield Sample(f"optim.{info.name}", _optimizer(info.optim_cls, given.kwargs, dtype))


def _optimizer(cls: Any, kwargs: dict[str, Any], dtype: torch.dtype) -> Callable[[], Results]:
    def run() -> Results:
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
        ).to(dtype)
        parameters = [p for p in model.parameters() if cls is not torch.optim.Muon or p.dim() == 2]
        optimizer = cls(parameters, **deepcopy(kwargs))
        x = torch.randn(5, 4, dtype=dtype)
        wanted = x.sum(1, keepdim=True).tanh()  # within the model's reach: no optimizer diverges

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = (model(x) - wanted).square().mean()
            loss.backward()
            return loss

        losses = [torch.as_tensor(optimizer.step(closure)) for _ in range(_STEPS)]
        return [*losses, *model.parameters(), *(p.grad for p in model.parameters())]

    return run


DATABASES = {"operators": operators, "modules": modules, "optimizers": optimizers}


def _and_backward(out: Any, leaves: list[torch.Tensor]) -> Results:
    values = tensors(out)
    asked = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf]
    ends = [value for value in values if value.requires_grad]
    if asked and ends:
        # In float64, since a sum in half precision may be inf where no value is.
        total = sum(value.to_dense().abs().sum(dtype=torch.float64) for value in ends)
        assert isinstance(total, torch.Tensor)
        total.backward()
    return [*(value.detach() for value in values), *(leaf.grad for leaf in asked)]


def fresh(value: Any) -> Any:
    """A copy that shares no memory with the sample, since ops may write to what they are given."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, torch.nn.Module):
        return deepcopy(value)
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [fresh(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    return []
