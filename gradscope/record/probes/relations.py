"""How a wrong gradient relates to the right one: arithmetic on two pairs of vectors.

Each pair belongs to one grad_output. A relation is claimed only where it holds for both, to the
tolerance of the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradscope.facts import Compared, TensorFactor
from gradscope.facts.functions import Detail


@dataclass(frozen=True, slots=True)
class Relation:
    """`kinds` as in `facts.FunctionCheck.relations`. `factor` is what the gradient is too large
    by, `detail` names what the kind speaks of (a tensor, a condition)."""

    kinds: tuple[str, ...]
    factor: float | None = None
    detail: Detail = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Backward's gradient (`got`) and the right one (`right`) for two grad_outputs, and the right
    one for a grad_output of ones. `local`: each output depends on its own element alone."""

    got: tuple[Tensor, Tensor]
    right: tuple[Tensor, Tensor]
    unit: Tensor
    cotangents: tuple[Tensor, Tensor]
    tolerance: float
    noise: float = 0.0
    local: bool = False

    @property
    def varies(self) -> bool:
        """Whether the right gradient depends on grad_output in a way that would show."""
        return not close(*self.right, self.tolerance)


def wrong_at(got: Tensor, right: Tensor, tolerance: float, noise: float = 0.0) -> Tensor:
    """Where two gradients differ by more than the measurement can be off."""
    usual = right[torch.isfinite(right)].square().mean().sqrt() if right.numel() else right.sum()
    usual = torch.nan_to_num(usual)
    allowed = tolerance * (torch.maximum(got.abs(), right.abs()) + 1e-2 * usual) + noise
    return ~((got - right).abs() <= allowed) & torch.isfinite(right)


def close(first: Tensor, second: Tensor, tolerance: float, noise: float = 0.0) -> bool:
    return first.shape == second.shape and not bool(wrong_at(first, second, tolerance, noise).any())


def relate(evidence: Evidence, named: Mapping[str, Tensor]) -> Relation:
    """The simplest relation that holds. `named` are tensors of the gradient's shape that a
    formula may have left out: inputs and the output."""
    tolerance = evidence.tolerance
    independent = close(*evidence.got, tolerance) and evidence.varies
    if independent and bool(evidence.got[0].count_nonzero()):
        got, unit = evidence.got[0], evidence.unit
        if close(got, unit, tolerance, evidence.noise):
            return Relation(("ignored",))
        inner = _plain([(got, unit)], tolerance)
        return replace(inner, kinds=("ignored", *inner.kinds)) if inner else Relation(("ignored",))
    pairs = list(zip(evidence.got, evidence.right, strict=True))
    for found in _in_turn(evidence, pairs, named):
        if found is not None:
            return found
    return _unfitted(pairs, tolerance)


def _in_turn(
    evidence: Evidence, pairs: Sequence[tuple[Tensor, Tensor]], named: Mapping[str, Tensor]
) -> Iterator[Relation | None]:
    yield _plain(pairs, evidence.tolerance)
    yield _number(evidence)
    yield _times(pairs, named, evidence.tolerance)
    yield _bounded(evidence)


def _plain(pairs: Sequence[tuple[Tensor, Tensor]], tolerance: float) -> Relation | None:
    """Relations that know nothing of grad_output."""
    if all(not got.count_nonzero() for got, _ in pairs):
        return Relation(("zero",))
    factor = _factor(pairs, tolerance)
    if factor is not None:
        return _by_factor((), factor, tolerance)
    return _constant(pairs, tolerance) or _transposed(pairs, tolerance)


def _by_factor(kinds: tuple[str, ...], factor: float, tolerance: float) -> Relation:
    sign = ("sign",) if factor < 0 else ()
    exact = abs(abs(factor) - 1) <= tolerance
    return Relation(
        (*kinds, *sign, *(() if exact else ("factor",))), None if exact else abs(factor)
    )


def _factor(pairs: Sequence[tuple[Tensor, Tensor]], tolerance: float) -> float | None:
    got = torch.cat([g.reshape(-1) for g, _ in pairs])
    right = torch.cat([r.reshape(-1) for _, r in pairs])
    weight = float(right.square().sum())
    if not weight or not math.isfinite(weight):
        return None
    factor = float((got * right).sum()) / weight
    return factor if close(got, factor * right, tolerance) else None


def _constant(pairs: Sequence[tuple[Tensor, Tensor]], tolerance: float) -> Relation | None:
    """One number for all elements: their mean, or a multiple of it."""
    factors = []
    for got, right in pairs:
        alike = close(got, got.mean().expand_as(got), tolerance)
        if got.numel() < 2 or not alike or close(right, right.mean().expand_as(right), tolerance):
            return None
        mean, usual = float(right.mean()), float(right.square().mean().sqrt())
        factors.append(float(got.mean()) / mean if abs(mean) > 1e-6 * usual else math.nan)
    first = factors[0]
    if all(math.isfinite(f) and abs(f - first) <= 10 * tolerance * abs(first) for f in factors):
        return _by_factor(("mean",), first, 10 * tolerance)
    return Relation(("mean",), None, "unrelated")


def _transposed(pairs: Sequence[tuple[Tensor, Tensor]], tolerance: float) -> Relation | None:
    if any(right.ndim != 2 or min(right.shape) < 2 for _, right in pairs):
        return None
    turned = [(got, right.T.reshape(right.shape)) for got, right in pairs]
    factor = _factor(turned, tolerance)
    return None if factor is None else _by_factor(("transposed",), factor, tolerance)


# What a formula may use of grad_output in place of its elements.
_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda cotangent: cotangent.mean(),
    "sum": lambda cotangent: cotangent.sum(),
    "first element": lambda cotangent: cotangent[0],
    "last element": lambda cotangent: cotangent[-1],
    "norm": lambda cotangent: cotangent.norm(),
}


def _number(evidence: Evidence) -> Relation | None:
    if evidence.cotangents[0].numel() < 2:
        return None
    found = None
    for name, number in _NUMBERS.items():
        parts = [
            (got / number(v), evidence.unit)
            for got, v in zip(evidence.got, evidence.cotangents, strict=True)
        ]
        if close(parts[0][0], parts[1][0], evidence.tolerance):
            inner = _plain(parts, evidence.tolerance) or Relation(())
            named = replace(inner, kinds=("number", *inner.kinds), detail=name)
            found = named if found is None or len(named.kinds) < len(found.kinds) else found
    return found


# Factors that a derivative may lack or have too many of: text with {} for a tensor's name.
_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "{}": lambda t: t,
    "|{}|": torch.abs,
    "{}^2": torch.square,
    "1 + |{}|": lambda t: 1 + t.abs(),
    "1 - {}": lambda t: 1 - t,
    "1 + {}": lambda t: 1 + t,
    "1 - {}^2": lambda t: 1 - t.square(),
    "1 + {}^2": lambda t: 1 + t.square(),
    "sqrt({})": torch.sqrt,
    "exp({})": torch.exp,
    "{} * (1 - {})": lambda t: t * (1 - t),
    "{}^3": lambda t: t**3,
}


def _times(
    pairs: Sequence[tuple[Tensor, Tensor]], named: Mapping[str, Tensor], tolerance: float
) -> Relation | None:
    """Off by a factor that is a function of an input or the output."""
    for name, tensor in named.items():
        for form, of in _FORMS.items():
            value = of(tensor)
            if not bool(torch.isfinite(value).all()):
                continue
            missing = _factor([(got * value, right) for got, right in pairs], tolerance)
            extra = _factor([(got, right * value) for got, right in pairs], tolerance)
            factor = extra if extra is not None else missing
            if (
                factor is None
                or not factor
                or close(value, value.mean().expand_as(value), tolerance)
            ):
                continue
            kind = "extra" if extra is not None else "missing"
            number = _by_factor((kind,), factor, tolerance)
            return replace(number, detail=TensorFactor(form, name))
    return None


def _bounded(evidence: Evidence) -> Relation | None:
    """The derivative of a local Function, kept within bounds: as it should be inside of them,
    and constant where it would be larger."""
    if not evidence.local:
        return None
    got, right = evidence.got[0], evidence.right[0]
    rates, true = (t / evidence.cotangents[0].reshape(t.shape) for t in (got, right))
    wrong = wrong_at(got, right, evidence.tolerance, evidence.noise)
    if not bool(wrong.any()) or bool(wrong.all()):
        return None
    bound = rates[wrong].abs().mean()
    same = close(rates[wrong].abs(), bound.expand_as(rates[wrong]), evidence.tolerance)
    larger = bool((true[wrong].abs() > bound).all() and (true[wrong] * rates[wrong] > 0).all())
    within = bool((true[~wrong].abs() <= bound * (1 + evidence.tolerance)).all())
    return (
        Relation(("bounded",), None, f"{float(bound):.4g}") if same and larger and within else None
    )


def _unfitted(pairs: Sequence[tuple[Tensor, Tensor]], tolerance: float) -> Relation:
    got, right = pairs[0]
    off = float((got - right).norm() / right.norm()) if bool(right.count_nonzero()) else math.inf
    if off < 1e-2:
        return Relation(("approximate",), off)
    wrong = torch.stack([wrong_at(g, r, tolerance) for g, r in pairs]).any(0)
    return Relation(("some",) if not bool(wrong.all()) else ("unknown",))


def condition(wrong: Tensor, named: Mapping[str, Tensor]) -> str | Compared:
    """Which elements are wrong: by the value of a tensor, else by their rows, in words."""
    if bool(wrong.all()):
        return ""
    for name, tensor in named.items():
        for absolute, values in ((False, tensor), (True, tensor.abs())):
            bad, good = values[wrong], values[~wrong]
            if bool((bad == bad[0]).all()) and not bool((good == bad[0]).any()):
                return Compared(name, "=", float(bad[0]), absolute)
            if bad.max() < good.min():
                bound = _between(float(bad.max()), float(good.min()))
                return Compared(name, "<", bound, absolute)
            if bad.min() > good.max():
                bound = _between(float(good.max()), float(bad.min()))
                return Compared(name, ">", bound, absolute)
    if wrong.ndim >= 2:
        for dim in range(wrong.ndim):
            lines = wrong.movedim(dim, 0).reshape(wrong.shape[dim], -1)
            full, none = lines.all(1), ~lines.any(1)
            if bool((full | none).all()):
                hit = [str(i) for i in full.nonzero().flatten().tolist()]
                more = ", ..." if len(hit) > 6 else ""
                return f"index {', '.join(hit[:6])}{more} of dimension {dim}"
    return ""


def _between(low: float, high: float) -> float:
    """The roundest number in an interval: 0, 1, 0.5 rather than 0.4731."""
    for digits in range(5):
        for value in (round((low + high) / 2, digits), round(low, digits), round(high, digits)):
            if low <= value <= high:
                return value or 0.0  # without the sign of -0
    return (low + high) / 2
