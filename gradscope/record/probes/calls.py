"""Calls of one custom Function at points near the one where the program called it."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gradscope.dataclass import dataclass
from gradscope.record.forking import Randomness

MOST_CALLS = 12  # of forward and backward together, for one signature

# The inputs that need a gradient, in the order of the arguments. Complex ones are pairs of real
# numbers (`view_as_real`): autograd's gradient of a complex input is that of its two parts.
Point = list[Tensor]
Apply = Callable[..., Any]  # torch's own `Function.apply`, unbound and unpatched


class NoVerdict(Exception):
    """Why the experiment cannot tell: one sentence."""


class TooFew(Exception):
    """Backward returned fewer gradients (`got`) than forward took arguments."""

    def __init__(self, got: int) -> None:
        super().__init__(got)
        self.got = got


@dataclass(frozen=True, slots=True)
class Made:
    """What one forward gave. `values` are the differentiable outputs, those at `live`, as one flat
    vector; `node` is the autograd node, which is also the ctx of backward. `changed` marks, for
    each input, the elements that forward has written over."""

    outputs: tuple[Any, ...]
    live: tuple[int, ...]
    values: Tensor
    node: Any
    changed: list[Tensor]


@dataclass
class Calls:
    """Calls a Function in `dtype`, at most MOST_CALLS times. `made` counts them."""

    cls: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    apply: Apply
    dtype: torch.dtype
    made: int = 0
    positions: tuple[int, ...] = field(init=False)
    _randomness: Randomness = field(default_factory=Randomness)

    def __post_init__(self) -> None:
        self.positions = tuple(i for i, arg in enumerate(self.args) if needs_grad(arg))

    @property
    def left(self) -> int:
        return MOST_CALLS - self.made

    def name(self, position: int) -> str:
        """The argument's name in forward's signature."""
        try:
            parameters = list(inspect.signature(self.cls.forward).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        if not self._fills_context_apart:
            parameters = parameters[1:]
        plain = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL]
        return plain[position] if position < len(plain) else f"argument {position}"

    @property
    def _fills_context_apart(self) -> bool:
        """Whether `setup_context` fills the ctx, and forward takes none."""
        return self.cls.setup_context is not torch.autograd.Function.setup_context

    def start(self) -> Point:
        """The point where the program called the Function."""
        inputs = (self.args[position].detach() for position in self.positions)
        return [as_real(value).to(self.dtype).clone() for value in inputs]

    def forward(self, point: Point) -> Made:
        self._begin_forward()
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in point]
            arguments = self._arguments(leaves)
            result = self.apply(self.cls, *arguments, **self.kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        live = tuple(i for i, out in enumerate(outputs) if needs_grad(out))
        if not live:
            raise NoVerdict("no output is differentiable")
        node = outputs[live[0]].grad_fn
        if not hasattr(node, "needs_input_grad"):
            raise NoVerdict("the outputs are not made by the Function's own node")
        parts = [as_real(outputs[i].detach()) for i in live]
        values = torch.cat([part.reshape(-1).to(self.dtype) for part in parts])
        left = (as_real(arguments[position].detach()) for position in self.positions)
        changed = [after != before for after, before in zip(left, point, strict=True)]
        return Made(outputs, live, values, node, changed)

    def backward(
        self,
        made: Made,
        cotangent: Tensor,
        ctx: Any = None,
        changed: Callable[..., Any] | None = None,
    ) -> list[Any]:
        """What the hand-written backward, or a changed one, returns for the inputs of a point,
        before autograd adapts shapes and dtypes. `cotangent` is one flat vector over all
        differentiable outputs."""
        if changed is None:
            self._spend()
        pieces = iter(cotangent.split([_size(made.outputs[i]) for i in made.live]))
        gradients = [
            _shaped(next(pieces), output)
            if place in made.live
            else torch.zeros_like(output)
            if isinstance(output, Tensor)
            else None
            for place, output in enumerate(made.outputs)
        ]
        with torch.no_grad():
            formula = changed or self.formula
            returned = formula(ctx if ctx is not None else made.node, *gradients)
        returned = returned if isinstance(returned, tuple | list) else (returned,)
        if len(returned) < len(self.args):
            raise TooFew(len(returned))
        return [returned[position] for position in self.positions]

    @property
    def formula(self) -> Callable[..., Any]:
        own = self.cls.backward is not torch.autograd.Function.backward
        return self.cls.backward if own else self.cls.vjp  # type: ignore[no-any-return]

    def taped(
        self, point: Point, made: Made, within: AbstractContextManager[object] | None = None
    ) -> Callable[..., list[Tensor]] | None:
        """Autograd's own gradient of the same forward, run without the Function around it, and
        `within` a context: of the inputs, or of other tensors that forward has made. None where
        forward cannot be run so. What leaves autograd in it (detach, numpy) makes the gradient
        wrong: it is to be compared with differences before it is believed."""
        self._begin_forward()
        leaves = [tensor.detach().requires_grad_() for tensor in point]
        try:
            with torch.enable_grad(), within or nullcontext():
                context = () if self._fills_context_apart else (self._scratch(),)
                result = self.cls.forward(*context, *self._arguments(leaves), **self.kwargs)
        except Exception:
            return None
        given = result if isinstance(result, tuple | list) else (result,)
        outputs = [given[i] for i in made.live if i < len(given)]
        sizes = [_size(made.outputs[i]) for i in made.live]
        if [_size(out) if isinstance(out, Tensor) else None for out in outputs] != sizes:
            return None

        def gradient(cotangent: Tensor, of: Sequence[Tensor] = leaves) -> list[Tensor]:
            with torch.enable_grad():
                # As one number: given grad_outputs, torch.autograd imports sympy for a second.
                terms = [
                    (part * piece.view(part.shape).to(part.dtype)).sum()
                    for part, piece in zip(
                        map(as_real, outputs), cotangent.split(sizes), strict=True
                    )
                    if part.requires_grad
                ]
                if not terms:
                    return [torch.zeros_like(leaf) for leaf in of]
                total = torch.stack(terms).sum()
            found = torch.autograd.grad(total, of, retain_graph=True, allow_unused=True)
            pairs = zip(of, found, strict=True)
            return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in pairs]

        return gradient

    def _scratch(self) -> SimpleNamespace:
        """A ctx for a forward that is run for its value alone."""
        needed = tuple(i in self.positions for i in range(len(self.args)))
        names = ("save_for_backward", "save_for_forward", "mark_dirty", "set_materialize_grads")
        ignored = dict.fromkeys((*names, "mark_non_differentiable"), lambda *_: None)
        return SimpleNamespace(needs_input_grad=needed, **ignored)

    def _arguments(self, leaves: Sequence[Tensor]) -> list[Any]:
        """A Function that writes into its input may do so to a copy, never to a leaf."""
        arguments = [self._converted(arg) for arg in self.args]
        for position, leaf in zip(self.positions, leaves, strict=True):
            value = leaf.clone()
            is_complex = self.args[position].is_complex()
            arguments[position] = torch.view_as_complex(value) if is_complex else value
        return arguments

    def _converted(self, arg: Any) -> Any:
        if not isinstance(arg, Tensor):
            return arg
        arg = arg.detach().clone()
        if arg.is_complex():
            return arg.to(self.dtype.to_complex())
        return arg.to(self.dtype) if arg.is_floating_point() else arg

    def _begin_forward(self) -> None:
        self._spend()
        self._randomness.put_back()

    def _spend(self) -> None:
        if self.left <= 0:
            raise NoVerdict(f"{MOST_CALLS} calls were not enough")
        self.made += 1


class Copied:
    """A ctx whose tensors may be written into, with other saved ones in the place of some."""

    def __init__(self, node: Any, others: Mapping[int, Tensor]) -> None:
        saved = enumerate(node.saved_tensors)
        self.saved_tensors = tuple(_copied(others.get(i, one)) for i, one in saved)
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return _copied(getattr(self._node, name))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def first_rows(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apply: Apply, most: int
) -> tuple[tuple[Any, ...], int, int]:
    """The arguments with so many rows (dimension 0) that `most` elements are left, how many rows
    these are, and of how many. NoVerdict where forward gives something else for a slice than the
    slice of what it gives for all: it does not treat its rows one by one."""

    def forward(given: tuple[Any, ...]) -> list[Any]:
        own = (one.clone() if isinstance(one, Tensor) else one for one in given)
        with torch.no_grad():
            result = apply(cls, *own, **kwargs)
        return list(result) if isinstance(result, tuple) else [result]

    slices = list(_slices(args, most))
    if not slices:
        raise NoVerdict("no part of its rows is small enough")
    whole = forward(args)
    for part, rows, of in slices:
        try:
            given = forward(part)
        except Exception:  # these arguments do not go together: another slice may
            continue
        if all(_is_slice(*pair, rows, of) for pair in zip(given, whole, strict=True)):
            return part, rows, of
    raise NoVerdict("its forward does not treat the rows of a batch one by one")


def _slices(args: tuple[Any, ...], most: int) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Of every tensor that is as long as the largest one, else of that one alone."""
    sizes = {i: one.numel() for i, one in enumerate(args) if isinstance(one, Tensor) and one.dim()}
    largest = max(sizes, key=sizes.__getitem__)
    of = args[largest].shape[0]
    for chosen in ([i for i in sizes if args[i].shape[0] == of], [largest]):
        room = most - sum(size for i, size in sizes.items() if i not in chosen)
        rows = room // sum(sizes[i] // of for i in chosen)
        if 0 < rows < of:
            yield tuple(a[:rows] if i in chosen else a for i, a in enumerate(args)), rows, of


def _is_slice(given: Any, whole: Any, rows: int, of: int) -> bool:
    if not isinstance(whole, Tensor) or not isinstance(given, Tensor):
        return type(given) is type(whole)
    if whole.dim() and whole.shape[0] == of and given.shape == (rows, *whole.shape[1:]):
        whole = whole[:rows]
    if given.shape != whole.shape:
        return False
    # Kernels may sum in another order; a statistic over all rows is off by far more.
    near = torch.finfo(whole.dtype).eps ** 0.5 if whole.is_floating_point() else 0.0
    return torch.allclose(given, whole, rtol=near, atol=near, equal_nan=True)


def needs_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


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
