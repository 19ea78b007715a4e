"""How a wrong gradient relates to the right one: arithmetic on the gradients of one input.

Gradients are float64 and have one row for each of two random grad_outputs. A relation is claimed
only where it holds for both, to the tolerance of the measurement.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gradscope.dataclass import dataclass
from gradscope.facts import Compared, Relation, TensorFactor


@dataclass(frozen=True, slots=True)
class Evidence:
    """Backward's gradient (`got`) and the right one (`right`) for two grad_outputs (`cotangents`,
    one flat row each), and the right one for a grad_output of ones. `local`: each output depends on
    its own element alone."""

    got: Tensor
    right: Tensor
    unit: Tensor
    cotangents: Tensor
    tolerance: float
    noise: float = 0.0
    local: bool = False

    @property
    def is_flat(self) -> bool:
        """Without any slope the forward is a step function here, the gradient somebody's choice."""
        return not (bool(self.unit.any()) or bool(self.right.any()))

    def wrong(self) -> Tensor:
        """The elements that are wrong for either grad_output."""
        return wrong_at(self.got, self.right, self.tolerance, self.noise).any(0)


def wrong_at(got: Tensor, right: Tensor, tolerance: float, noise: float = 0.0) -> Tensor:
    """Where two gradients differ by more than the measurement can be off."""
    usual = right[torch.isfinite(right)].square().mean().sqrt().nan_to_num()
    allowed = tolerance * (torch.maximum(got.abs(), right.abs()) + 1e-2 * usual) + noise
    return ~(((got - right).abs() <= allowed) & got.isfinite()) & right.isfinite()


def rows(gradients: Tensor) -> Tensor:
    """One flat row for each grad_output."""
    return gradients.reshape(len(gradients), -1)


def close(got: Tensor, right: Tensor, tolerance: float, noise: float = 0.0) -> bool:
    return not bool(wrong_at(got, right.expand_as(got), tolerance, noise).any())


def relate(evidence: Evidence, named: Mapping[str, Tensor]) -> Relation:
    """The simplest relation that holds. `named` are tensors of the gradient's shape that a
    formula may have left out: inputs and the output."""
    got, right, tolerance = evidence.got, evidence.right, evidence.tolerance
    if not close(right[0], right[1], tolerance) and close(got[0], got[1], tolerance):
        if bool(got[0].count_nonzero()):
            unit = evidence.unit[None]
            alike = close(got[:1], unit, tolerance, evidence.noise)
            inner = None if alike else _plain(got[:1], unit, tolerance)
            return _inside("ignored", inner or Relation(()))
    return next(filter(None, _in_turn(evidence, named)), None) or _unfitted(evidence)


def _in_turn(evidence: Evidence, named: Mapping[str, Tensor]) -> Iterator[Relation | None]:
    yield _plain(evidence.got, evidence.right, evidence.tolerance)
    yield _number(evidence)
    yield _times(evidence, named)
    yield _bounded(evidence)


def _inside(kind: str, inner: Relation) -> Relation:
    return replace(inner, kinds=(kind, *inner.kinds))


def _plain(got: Tensor, right: Tensor, tolerance: float) -> Relation | None:
    """Relations that know nothing of grad_output."""
    if not bool(got.any()):
        return Relation(("zero",))
    factor = _factor(got, right, tolerance)
    if factor is not None:
        return _by_factor(factor, tolerance)
    return _constant(got, right, tolerance) or _transposed(got, right, tolerance)


def _by_factor(factor: float, tolerance: float) -> Relation:
    exact = abs(abs(factor) - 1) <= tolerance
    kinds = (*(("sign",) if factor < 0 else ()), *(() if exact else ("factor",)))
    return Relation(kinds, None if exact else abs(factor))


def _factor(got: Tensor, right: Tensor, tolerance: float) -> float | None:
    weight = float(right.square().sum())
    if not weight or not math.isfinite(weight):
        return None
    factor = float((got * right).sum()) / weight
    return factor if close(got, factor * right, tolerance) else None


def _constant(got: Tensor, right: Tensor, tolerance: float) -> Relation | None:
    """One number for all elements: their mean, or a multiple of it."""
    mine, true = rows(got), rows(right)
    if mine.shape[1] < 2 or not close(mine, mine.mean(1, keepdim=True), tolerance):
        return None
    if any(close(row, row.mean(), tolerance) for row in true):
        return None
    means, usual = true.mean(1), true.square().mean(1).sqrt()
    factors = mine.mean(1) / means
    is_mean = (means.abs() > 1e-6 * usual).all()
    if is_mean and bool(((factors - factors[0]).abs() <= 10 * tolerance * factors[0].abs()).all()):
        return _inside("mean", _by_factor(float(factors[0]), 10 * tolerance))
    return Relation(("mean",), None, "unrelated")


def _transposed(got: Tensor, right: Tensor, tolerance: float) -> Relation | None:
    if right.ndim != 3 or min(right.shape[1:]) < 2:
        return None
    factor = _factor(got, right.mT.reshape(right.shape), tolerance)
    return None if factor is None else _inside("transposed", _by_factor(factor, tolerance))


# What a formula may use of grad_output in place of its elements.
_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda cotangents: cotangents.mean(1),
    "sum": lambda cotangents: cotangents.sum(1),
    "first element": lambda cotangents: cotangents[:, 0],
    "last element": lambda cotangents: cotangents[:, -1],
    "norm": lambda cotangents: cotangents.norm(dim=1),
}


def _number(evidence: Evidence) -> Relation | None:
    if evidence.cotangents.shape[1] < 2:
        return None
    found = []
    for name, number in _NUMBERS.items():
        numbers = number(evidence.cotangents)
        parts = evidence.got / numbers.view(2, *[1] * evidence.unit.ndim)
        if close(parts[0], parts[1], evidence.tolerance):
            inner = _plain(parts, evidence.unit.expand_as(parts), evidence.tolerance)
            found.append(replace(_inside("number", inner or Relation(())), detail=name))
    return min(found, key=lambda relation: len(relation.kinds), default=None)


@dataclass(frozen=True, slots=True)
class Form:
    """A function of a tensor, and how it is written in code; {} stands for the tensor's name."""

    of: Callable[[Tensor], Tensor]
    code: str


# Factors that a derivative may lack or have too many of, as they are told.
FORMS = {
    "{}": Form(lambda t: t, "{}"),
    "|{}|": Form(torch.abs, "{}.abs()"),
    "{}^2": Form(torch.square, "{}.square()"),
    "1 + |{}|": Form(lambda t: 1 + t.abs(), "(1 + {}.abs())"),
    "1 - {}": Form(lambda t: 1 - t, "(1 - {})"),
    "1 + {}": Form(lambda t: 1 + t, "(1 + {})"),
    "1 - {}^2": Form(lambda t: 1 - t.square(), "(1 - {}.square())"),
    "1 + {}^2": Form(lambda t: 1 + t.square(), "(1 + {}.square())"),
    "sqrt({})": Form(torch.sqrt, "{}.sqrt()"),
    "exp({})": Form(torch.exp, "{}.exp()"),
    "{} * (1 - {})": Form(lambda t: t * (1 - t), "({} * (1 - {}))"),
    "{}^3": Form(lambda t: t**3, "{}**3"),
}


def _times(evidence: Evidence, named: Mapping[str, Tensor]) -> Relation | None:
    """Off by a factor that is a function of an input or the output."""
    got, right, tolerance = evidence.got, evidence.right, evidence.tolerance
    for name, tensor in named.items():
        for text, form in FORMS.items():
            value = form.of(tensor)
            if not bool(value.isfinite().all()) or close(value, value.mean(), tolerance):
                continue
            for kind, pair in (("extra", (got, right * value)), ("missing", (got * value, right))):
                factor = _factor(*pair, tolerance)
                if factor:
                    number = _inside(kind, _by_factor(factor, tolerance))
                    return replace(number, detail=TensorFactor(text, name))
    return None


def _bounded(evidence: Evidence) -> Relation | None:
    """The derivative of a local Function, kept within bounds: as it should be inside of them,
    and constant where it would be larger."""
    wrong = evidence.wrong().flatten()
    if not evidence.local or not bool(wrong.any()) or bool(wrong.all()):
        return None
    got, right = (
        one[0].flatten() / evidence.cotangents[0] for one in (evidence.got, evidence.right)
    )
    bound = got[wrong].abs().mean()
    held = close(got[wrong].abs(), bound, evidence.tolerance)
    beyond = (right[wrong].abs() > bound) & (right[wrong] * got[wrong] > 0)
    within = right[~wrong].abs() <= bound * (1 + evidence.tolerance)
    if held and bool(beyond.all()) and bool(within.all()):
        return Relation(("bounded",), None, f"{float(bound):.4g}")
    return None


def _unfitted(evidence: Evidence) -> Relation:
    got, right = evidence.got[0], evidence.right[0]
    off = float((got - right).norm() / right.norm())
    if off < 1e-2:
        return Relation(("approximate",), off)
    return Relation(("unknown",) if bool(evidence.wrong().all()) else ("some",))


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
                return Compared(name, "<", _between(bad.max(), good.min()), absolute)
            if bad.min() > good.max():
                return Compared(name, ">", _between(good.max(), bad.min()), absolute)
    for dim in range(wrong.ndim if wrong.ndim > 1 else 0):
        lines = wrong.movedim(dim, 0).flatten(1)
        full = lines.all(1)
        if torch.equal(full, lines.any(1)):
            hit = full.nonzero().flatten().tolist()
            more = ", ..." if len(hit) > 6 else ""
            return f"index {', '.join(map(str, hit[:6]))}{more} of dimension {dim}"
    return ""


def _between(start: Tensor, end: Tensor) -> float:
    """The roundest number in an interval: 0, 1, 0.5 rather than 0.4731."""
    low, high = float(start), float(end)
    for digits in range(5):
        for value in (round((low + high) / 2, digits), round(low, digits), round(high, digits)):
            if low <= value <= high:
                return value or 0.0  # without the sign of -0
    return (low + high) / 2
