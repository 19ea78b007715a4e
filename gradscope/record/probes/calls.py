"""Calls of one custom Function at points near the one where the program called it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gradscope.record.probes.isolate import Randomness

MOST_CALLS = 10  # of forward and backward together, for one signature

# The inputs that need a gradient, in the order of the arguments. Complex ones are pairs of real
# numbers (`view_as_real`): autograd's gradient of a complex input is that of its two parts.
Point = list[Tensor]
Cotangent = Tensor  # one flat vector over all differentiable outputs
Gradients = list[Tensor | None]  # as returned, one for each input of a point


class NoVerdict(Exception):
    """Why the experiment cannot tell: one sentence."""


@dataclass(frozen=True, slots=True)
class Made:
    """What one forward gave. `values` are the differentiable outputs as one flat vector, `node` is
    the autograd node, which is also the ctx of backward."""

    outputs: tuple[Any, ...]
    live: tuple[int, ...]
    values: Tensor
    node: Any


@dataclass
class Calls:
    """Calls a Function in `dtype`, at most MOST_CALLS times."""

    cls: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    apply: Callable[..., Any]  # torch's own Function.apply, unpatched
    dtype: torch.dtype
    forwards: int = 0
    backwards: int = 0
    positions: tuple[int, ...] = field(init=False)
    _randomness: Randomness = field(default_factory=Randomness)

    def __post_init__(self) -> None:
        self.positions = tuple(i for i, arg in enumerate(self.args) if needs_grad(arg))

    @property
    def made(self) -> int:
        return self.forwards + self.backwards

    @property
    def left(self) -> int:
        return MOST_CALLS - self.made

    def names(self) -> dict[int, str]:
        """The names of the arguments in forward's signature, by position."""
        try:
            parameters = list(inspect.signature(self.cls.forward).parameters.values())
        except (TypeError, ValueError):
            return {}
        if not self.separate_context:
            parameters = parameters[1:]
        plain = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL]
        return dict(enumerate(plain))

    @property
    def separate_context(self) -> bool:
        """Whether the ctx is filled by `setup_context`, and forward takes none."""
        return self.cls.setup_context is not torch.autograd.Function.setup_context

    def start(self) -> Point:
        """The point where the program called the Function."""
        inputs = (self.args[position].detach() for position in self.positions)
        return [as_real(value).to(self.dtype).clone() for value in inputs]

    def forward(self, point: Point) -> Made:
        self._spend()
        self.forwards += 1
        self._randomness.put_back()
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in point]
            # A Function that writes into its input may do so to a copy, never to a leaf.
            result = self.apply(
                self.cls, *self._arguments([leaf.clone() for leaf in leaves]), **self.kwargs
            )
        outputs = result if isinstance(result, tuple) else (result,)
        live = tuple(i for i, out in enumerate(outputs) if _is_live(out))
        if not live:
            raise NoVerdict("no output is differentiable")
        node = outputs[live[0]].grad_fn
        if not hasattr(node, "needs_input_grad"):
            raise NoVerdict("the outputs are not made by the Function's own node")
        parts = [as_real(outputs[i].detach()) for i in live]
        values = torch.cat([part.reshape(-1).to(self.dtype) for part in parts])
        return Made(outputs, live, values, node)

    def backward(self, made: Made, cotangent: Cotangent, ctx: Any = None) -> Gradients:
        """What the hand-written backward returns, before autograd adapts shapes and dtypes."""
        self._spend()
        self.backwards += 1
        gradients: list[Tensor | None] = []
        start = 0
        for place, output in enumerate(made.outputs):
            if place in made.live:
                piece = cotangent[start : start + _size(output)]
                gradients.append(_shaped(piece, output))
                start += _size(output)
            elif isinstance(output, Tensor):
                gradients.append(torch.zeros_like(output))
            else:
                gradients.append(None)
        with torch.no_grad():
            returned = self.formula(ctx if ctx is not None else made.node, *gradients)
        returned = returned if isinstance(returned, tuple | list) else (returned,)
        if len(returned) < len(self.args):
            raise TooFew(len(returned), len(self.args))
        return [returned[position] for position in self.positions]

    @property
    def formula(self) -> Callable[..., Any]:
        own = self.cls.backward is not torch.autograd.Function.backward
        return self.cls.backward if own else self.cls.vjp  # type: ignore[no-any-return]

    def taped(self, point: Point, made: Made) -> Callable[[Cotangent], list[Tensor]] | None:
        """Autograd's own gradient of the same forward, run without the Function around it. None
        where forward cannot be run so. What leaves autograd in it (detach, numpy) makes the
        gradient wrong: it is to be compared with differences before it is believed."""
        self._spend()
        self.forwards += 1
        self._randomness.put_back()
        leaves = [tensor.detach().requires_grad_() for tensor in point]
        try:
            with torch.enable_grad():
                arguments = self._arguments([leaf.clone() for leaf in leaves])
                context = () if self.separate_context else (_Scratch(self, leaves),)
                result = self.cls.forward(*context, *arguments, **self.kwargs)
        except Exception:
            return None
        given = result if isinstance(result, tuple | list) else (result,)
        outputs = [given[i] for i in made.live if i < len(given)]
        sizes = [_size(made.outputs[i]) for i in made.live]
        if [_size(out) if isinstance(out, Tensor) else None for out in outputs] != sizes:
            return None

        def gradient(cotangent: Cotangent) -> list[Tensor]:
            pieces = zip(outputs, cotangent.split(sizes), strict=True)
            with torch.enable_grad():
                parts = [(as_real(out), piece) for out, piece in pieces if out.requires_grad]
                held = [(part, piece.view(part.shape).to(part.dtype)) for part, piece in parts]
                if not held:
                    return [torch.zeros_like(leaf) for leaf in leaves]
                # As one number: given grad_outputs, torch.autograd imports sympy for a second.
                total = torch.stack([(out * piece).sum() for out, piece in held]).sum()
            found = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
            pairs = zip(leaves, found, strict=True)
            return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in pairs]

        return gradient

    def _arguments(self, inputs: Sequence[Tensor]) -> list[Any]:
        arguments = [self._converted(arg) for arg in self.args]
        for position, tensor in zip(self.positions, inputs, strict=True):
            is_complex = self.args[position].is_complex()
            arguments[position] = torch.view_as_complex(tensor) if is_complex else tensor
        return arguments

    def _converted(self, arg: Any) -> Any:
        if not isinstance(arg, Tensor):
            return arg
        arg = arg.detach().clone()
        if arg.is_complex():
            return arg.to(self.dtype.to_complex())
        return arg.to(self.dtype) if arg.is_floating_point() else arg

    def _spend(self) -> None:
        if self.left <= 0:
            raise NoVerdict(f"{MOST_CALLS} calls were not enough")


class TooFew(Exception):
    """Backward returned fewer gradients than forward took arguments."""

    def __init__(self, got: int, expected: int) -> None:
        super().__init__(got, expected)
        self.got, self.expected = got, expected


class _Scratch:
    """A ctx for a forward that is run for its value alone."""

    saved_tensors: tuple[Any, ...] = ()

    def __init__(self, calls: Calls, leaves: Sequence[Tensor]) -> None:
        self.needs_input_grad = tuple(i in calls.positions for i in range(len(calls.args)))

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None: ...

    def mark_dirty(self, *tensors: Any) -> None: ...

    def mark_non_differentiable(self, *tensors: Any) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


def needs_grad(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.requires_grad


def as_real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs, with one dimension more; others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _size(tensor: Tensor) -> int:
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def _shaped(piece: Tensor, like: Tensor) -> Tensor:
    """A part of a flat vector of real numbers as a tensor of the shape and dtype of another."""
    if like.is_complex():
        pairs = piece.reshape(*like.shape, 2)
        return torch.view_as_complex(pairs.contiguous()).to(like.dtype).clone()
    return piece.view(like.shape).to(like.dtype).clone()


def _is_live(output: Any) -> bool:
    return isinstance(output, Tensor) and output.requires_grad
