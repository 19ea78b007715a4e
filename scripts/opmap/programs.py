"""Small programs that put an edge value into an op, from torch's own databases of sample inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

MAX = torch.finfo(torch.float32).max
NUMBERS = {"max": MAX, "-max": -MAX, "subnormal": 1e-42, "-0": -0.0}
SAMPLES = 20  # sample inputs of an op that are tried, spread over all that there are
# Databases name these otherwise, or not at all.
RENAMED = {
    "linalg.matrix_exp": "matrix_exp",
    "nn.functional.softmax": "softmax",
    "nn.functional.log_softmax": "log_softmax",
}
D = torch.distributions


@dataclass(frozen=True, eq=False)
class Program:
    """`function` of `arguments`, of which the floating tensors are leaves that need a gradient."""

    function: Callable[..., object]
    arguments: dict[str, object]  # "input", "args[0]", keyword -> value

    def leaves(self) -> dict[str, torch.Tensor]:
        return {
            name: value
            for name, value in self.arguments.items()
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        }

    def with_leaves(self, **changed: torch.Tensor) -> Program:
        return Program(self.function, self.arguments | changed)

    def run(self) -> list[torch.Tensor]:
        """The differentiable outputs."""
        positional = [v for k, v in self.arguments.items() if k == "input" or k.startswith("args[")]
        named = {
            k: v for k, v in self.arguments.items() if k != "input" and not k.startswith("args[")
        }
        return list(_tensors(self.function(*positional, **named)))


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)


@lru_cache(maxsize=4)
def programs(name: str) -> list[Program]:
    """The op's sample inputs as programs; none where no database knows the op."""
    found = list(_all_programs(name))
    empty = [one for one in found if not all(leaf.numel() for leaf in one.leaves().values())]
    full = [one for one in found if one not in empty]
    return full[:: max(1, len(full) // SAMPLES)] + empty[:SAMPLES]


def _all_programs(name: str) -> Iterator[Program]:
    yield from BY_HAND.get(name, lambda: iter(()))()
    for op in op_db:
        if op.name in (name, RENAMED.get(name)) and op.supports_autograd:
            for dtype in op.supported_backward_dtypes("cpu") & {torch.float32, torch.complex64}:
                for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
                    yield _program(op, sample.input, sample.args, sample.kwargs)
    for info in module_db:
        if info.name == name:
            yield from _modules(info)


def _modules(info: Any) -> Iterator[Program]:
    torch.manual_seed(0)
    for training in (True, False):
        samples = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        for sample in samples:
            module = info.module_cls(
                *sample.constructor_input.args, **sample.constructor_input.kwargs
            )
            module.train(training)
            first, *rest = sample.forward_input.args or (None,)
            yield _program(module, first, rest, sample.forward_input.kwargs)


def _program(
    function: Callable[..., object], first: object, rest: Iterable[object], named: dict[str, Any]
) -> Program:
    arguments = {"input": first} | {f"args[{i}]": value for i, value in enumerate(rest)} | named
    return Program(function, arguments)


def _by_hand(
    function: Callable[..., object], *inputs: Sequence[object]
) -> Callable[[], Iterator[Program]]:
    def make() -> Iterator[Program]:
        first, *rest = (torch.tensor(values) for values in inputs)
        yield _program(function, first, rest, {})

    return make


def _log_prob(distribution: Any, *inputs: Sequence[object]) -> Callable[[], Iterator[Program]]:
    return _by_hand(
        lambda value, *parameters: distribution(*parameters, validate_args=False).log_prob(value),
        *inputs,
    )


def _both(*makers: Callable[[], Iterator[Program]]) -> Callable[[], Iterator[Program]]:
    return lambda: itertools.chain.from_iterable(make() for make in makers)


F = torch.nn.functional
_ROWS = [[0.3, 0.7, 1.1], [0.2, 0.5, 0.4]]
_P = [0.3, 0.6, 0.1]
BY_HAND: dict[str, Callable[[], Iterator[Program]]] = {
    "distributions.Bernoulli": _log_prob(D.Bernoulli, [0.0, 1.0], [0.3, 0.6]),
    "distributions.Beta": _both(
        _log_prob(D.Beta, [0.3, 0.6], [1.5, 0.7], [2.0, 1.0]),
        _log_prob(D.Beta, [1.0], [1.5], [1.0]),
    ),
    "distributions.Categorical": _both(
        _by_hand(lambda p: D.Categorical(p, validate_args=False).entropy(), [0.3, 0.7]),
        _by_hand(lambda p: D.Categorical(p, validate_args=False).entropy(), [0.0, 0.0]),
    ),
    "distributions.Dirichlet": _by_hand(
        lambda c: D.Dirichlet(c, validate_args=False).entropy(), [0.5, 1.5]
    ),
    "distributions.Gamma": _log_prob(D.Gamma, [0.3, 0.6], [1.5, 0.7], [2.0, 1.0]),
    "distributions.Normal": _log_prob(D.Normal, [0.3, 0.6], [1.5, 0.7], [2.0, 1.0]),
    "distributions.StudentT": _by_hand(
        lambda value, df: D.StudentT(df, validate_args=False).log_prob(value), [0.3], [1.5]
    ),
    "distributions.TanhTransform": _both(
        _by_hand(D.TanhTransform()._inverse, [0.3, 0.5]),
        _by_hand(lambda x: D.TanhTransform().log_abs_det_jacobian(x, torch.tanh(x)), [0.3, 0.5]),
    ),
    "distributions.VonMises": _log_prob(D.VonMises, [0.3, 0.6], [0.5, 0.7], [2.0, 1.0]),
    "distributions.kl": _both(
        _by_hand(
            lambda p, q: D.kl_divergence(
                D.Categorical(p, validate_args=False), D.Categorical(q, validate_args=False)
            ),
            _P,
            [0.2, 0.2, 0.6],
        ),
        _by_hand(
            lambda s, t: D.kl_divergence(
                D.Normal(0.0, s, validate_args=False), D.Normal(0.0, t, validate_args=False)
            ),
            [1.0],
            [2.0],
        ),
    ),
    "nn.functional.gumbel_softmax": _by_hand(lambda x: F.gumbel_softmax(x, dim=-1), _ROWS),
    "nn.functional.lp_pool1d": _both(
        _by_hand(lambda x: F.lp_pool1d(x, 0.5, 2), [[0.3, 0.7, 1.1, 0.4]]),
        _by_hand(lambda x: F.lp_pool1d(x, 2.0, 2), [[0.3, 0.7, 1.1, 0.4]]),
    ),
}


def edged(program: Program, edge: str, where: str) -> Iterator[Program]:
    """The program with the edge in one argument: in its first element, then in all of them."""
    leaf = program.leaves().get(where)
    if leaf is None or (leaf.numel() == 0 and edge != "as-is"):
        return
    base = leaf.detach().clone()
    for changed in _put(base, edge):
        leaves = {
            name: value.detach().clone().requires_grad_()
            for name, value in program.leaves().items()
        }
        yield program.with_leaves(**leaves | {where: changed.requires_grad_()})
    if edge.startswith("all-") and all(t.numel() for t in program.leaves().values()):
        everywhere = {name: next(_put(t.detach(), edge)) for name, t in program.leaves().items()}
        yield program.with_leaves(**{k: t.requires_grad_() for k, t in everywhere.items()})
    if edge == "same-as-first" and where != "input":
        first = program.leaves()["input"].detach()
        yield program.with_leaves(
            input=first.clone().requires_grad_(), **{where: first.clone().requires_grad_()}
        )


def _put(base: torch.Tensor, edge: str) -> Iterator[torch.Tensor]:
    match edge:
        case "as-is":
            yield base
        case "all-zero" | "all-one" | "equal":
            yield torch.full_like(base, {"all-zero": 0.0, "all-one": 1.0}.get(edge, 0.5))
        case "identity" if base.dim() >= 2:
            yield torch.eye(*base.shape[-2:]).expand(base.shape).clone()
        case "zero-row" if base.dim():
            yield base.index_fill(0, torch.tensor(0), 0.0)
            yield base.index_fill(-1, torch.tensor(0), 0.0)
        case "dup-row" if base.dim() >= 2 and base.shape[-2] > 1:
            base[..., 1, :] = base[..., 0, :]
            yield base
        case "rank-1" if base.dim() >= 2:
            yield (base[..., :1] * base[..., :1, :]).clone()
        case "same-as-first" | "identity" | "zero-row" | "dup-row" | "rank-1":
            return
        case _:
            value = NUMBERS.get(edge, None)
            value = float(edge) if value is None else value
            one = base.clone(memory_format=torch.contiguous_format)
            one.view(-1)[0] = value
            yield one
            yield torch.full_like(base, value)


def is_finite(tensors: list[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
