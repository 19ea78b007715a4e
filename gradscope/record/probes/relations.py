"""How a wrong gradient relates to the right one: arithmetic on the gradients of one input.

Gradients are float64 and have one row for each of two random grad_outputs. A relation is claimed
only where it holds for both, to the tolerance of the measurement.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from gradscope.dataclass import dataclass
from gradscope.facts import Compared, Relation, TensorFactor

MOST = 4096  # elements that are looked at: a relation that is there shows in some of them


@dataclass(frozen=True, slots=True)
class Evidence:
    """Backward's gradient (`got`) and the right one (`right`) for two grad_outputs (`cotangents`,
    one flat row each), and the right one for a grad_output of ones; `wrong` marks the elements
    that are wrong for either. `aligned`: there are as many outputs as elements."""

    got: Tensor
    right: Tensor
    unit: Tensor
    cotangents: Tensor
    wrong: Tensor
    tolerance: float
    noise: float = 0.0
    aligned: bool = False

    @property
    def is_flat(self) -> bool:
        """Without any slope the forward is a step function here, the gradient somebody's choice."""
        return not (bool(self.unit.any()) or bool(self.right.any()))


def wrong_at(got: Tensor, right: Tensor, tolerance: float, noise: float = 0.0) -> Tensor:
    """Where two gradients differ by more than the measurement can be off."""
    known = right.isfinite()
    usual = (torch.where(known, right, 0.0).square_().sum() / known.sum()).sqrt().nan_to_num()
    # In place: of large gradients, memory for each intermediate costs more than the arithmetic.
    allowed = torch.maximum(got.abs(), right.abs()).add_(1e-2 * usual).mul_(tolerance).add_(noise)
    near = (got - right).abs_() <= allowed
    near &= got.isfinite()
    return near.logical_not_().logical_and_(known)


def rows(gradients: Tensor) -> Tensor:
    """One flat row for each grad_output."""
    return gradients.reshape(len(gradients), -1)


def close(got: Tensor, right: Tensor, tolerance: float, noise: float = 0.0) -> bool:
    return not bool(wrong_at(got, right.expand_as(got), tolerance, noise).any())


@dataclass(frozen=True, slots=True)
class _Right:
    """Right numbers at the elements that are looked at, one row for each grad_output, those at the
    same places of the transposed matrix, and the mean of all elements."""

    few: Tensor
    turned: Tensor | None
    mean: Tensor


@dataclass(frozen=True, slots=True)
class _Look:
    """The elements at some flat places (`at`), wrong ones and any, as rows."""

    whole: Evidence
    at: Tensor
    got: Tensor
    right: _Right
    unit: _Right

    @classmethod
    def at_some(cls, whole: Evidence) -> "_Look":
        at = some(whole.wrong.flatten())
        return cls(
            whole, at, rows(whole.got)[:, at], _right(whole.right, at), _right(whole.unit[None], at)
        )


def some(wrong: Tensor) -> Tensor:
    """All places of a small gradient; of a large one, so many by chance of those that are wrong,
    and of all: places at a distance may be those of one column."""
    if len(wrong) <= MOST:
        return torch.arange(len(wrong), device=wrong.device)
    generator, marked = torch.Generator().manual_seed(0), wrong.nonzero()[:, 0]

    def drawn(count: int) -> Tensor:
        size = (MOST // 2 if count else 0,)
        return torch.randint(max(count, 1), size, generator=generator).to(wrong.device)

    at: Tensor = torch.cat([marked[drawn(len(marked))], drawn(len(wrong))]).unique()
    return at


def _right(right: Tensor, at: Tensor) -> _Right:
    turned = None
    if right.ndim == 3 and min(right.shape[1:]) >= 2:
        lines = right.shape[1]
        turned = right[:, at % lines, at // lines]  # the transposed one has columns so long
    return _Right(rows(right)[:, at], turned, rows(right).mean(1))


def relate(evidence: Evidence, named: Mapping[str, Tensor]) -> Relation:
    """The simplest relation that holds. `named` are tensors of the gradient's shape that a
    formula may have left out: inputs and the output."""
    look, tolerance = _Look.at_some(evidence), evidence.tolerance
    got, right = look.got, look.right.few
    if not close(right[0], right[1], tolerance) and close(got[0], got[1], tolerance):
        if bool(got[0].count_nonzero()):
            alike = close(got[:1], look.unit.few, tolerance, evidence.noise)
            inner = None if alike else _plain(got[:1], look.unit, tolerance)
            unrelated = Relation((), None, "" if alike else "unrelated")
            return _inside("ignored", inner or unrelated)
    return (
        _plain(got, look.right, tolerance)
        or _number(look)
        or _times(look, named)
        or _bounded(look)
        or _unfitted(evidence)
    )


def _inside(kind: str, inner: Relation) -> Relation:
    return replace(inner, kinds=(kind, *inner.kinds))


def _plain(got: Tensor, right: _Right, tolerance: float) -> Relation | None:
    """Relations that know nothing of grad_output."""
    if not bool(got.any()):
        return Relation(("zero",))
    factor = _factor(got, right.few, tolerance)
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


def _constant(got: Tensor, right: _Right, tolerance: float) -> Relation | None:
    """One number for all elements: their mean, or a multiple of it."""
    if got.shape[1] < 2 or not close(got, got.mean(1, keepdim=True), tolerance):
        return None
    if any(close(row, row.mean(), tolerance) for row in right.few):
        return None
    means, usual = right.mean, right.few.square().mean(1).sqrt()
    factors = got.mean(1) / means
    is_mean = (means.abs() > 1e-6 * usual).all()
    if is_mean and bool(((factors - factors[0]).abs() <= 10 * tolerance * factors[0].abs()).all()):
        return _inside("mean", _by_factor(float(factors[0]), 10 * tolerance))
    return Relation(("mean",), None, "unrelated")


def _transposed(got: Tensor, right: _Right, tolerance: float) -> Relation | None:
    factor = None if right.turned is None else _factor(got, right.turned, tolerance)
    return None if factor is None else _inside("transposed", _by_factor(factor, tolerance))


# What a formula may use of grad_output in place of its elements.
_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda cotangents: cotangents.mean(1),
    "sum": lambda cotangents: cotangents.sum(1),
    "first element": lambda cotangents: cotangents[:, 0],
    "last element": lambda cotangents: cotangents[:, -1],
    "norm": lambda cotangents: cotangents.norm(dim=1),
}


def _number(look: _Look) -> Relation | None:
    cotangents, tolerance = look.whole.cotangents, look.whole.tolerance
    if cotangents.shape[1] < 2:
        return None
    found = []
    for name, number in _NUMBERS.items():
        sent = number(cotangents)[:, None]
        parts = look.got / sent
        if bool(sent.all()) and close(parts[0], parts[1], tolerance):
            inner = _plain(parts[:1], look.unit, tolerance)
            found.append(replace(_inside("number", inner or Relation(())), detail=name))
    return min(found, key=lambda relation: len(relation.kinds), default=None)


# Factors that a derivative may lack or have too many of, as they are told and as they are written
# in code; {} stands for the name of a tensor.
FORMS = {
    "{}": "{}",
    "|{}|": "{}.abs()",
    "{}^2": "{}.square()",
    "1 + |{}|": "(1 + {}.abs())",
    "1 - {}": "(1 - {})",
    "1 + {}": "(1 + {})",
    "1 - {}^2": "(1 - {}.square())",
    "1 + {}^2": "(1 + {}.square())",
    "sqrt({})": "{}.sqrt()",
    "exp({})": "{}.exp()",
    "{} * (1 - {})": "({} * (1 - {}))",
    "{}^3": "{}**3",
}


def _times(look: _Look, named: Mapping[str, Tensor]) -> Relation | None:
    """Off by a factor that is a function of an input or the output."""
    got, right, tolerance = look.got, look.right.few, look.whole.tolerance
    for name, tensor in named.items():
        few = tensor.reshape(-1)[look.at]
        for text, code in FORMS.items():
            value: Tensor = eval(code.replace("{}", "few"), {"few": few})
            if not bool(value.isfinite().all()) or close(value, value.mean(), tolerance):
                continue
            for kind, pair in (("extra", (got, right * value)), ("missing", (got * value, right))):
                factor = _factor(*pair, tolerance)
                if factor:
                    number = _inside(kind, _by_factor(factor, tolerance))
                    return replace(number, detail=TensorFactor(text, name))
    return None


def _bounded(look: _Look) -> Relation | None:
    """The derivative of a Function whose outputs each depend on their own element alone, kept
    within bounds: as it should be inside of them, and constant where it would be larger."""
    whole, wrong = look.whole, look.whole.wrong.flatten()[look.at]
    if not whole.aligned or not bool(wrong.any()) or bool(wrong.all()):
        return None
    cotangents, tolerance = whole.cotangents[:, look.at], whole.tolerance
    if not close(look.right.few / cotangents, look.unit.few, tolerance, whole.noise):
        return None
    got, right = (one[0] / cotangents[0] for one in (look.got, look.right.few))
    bound = got[wrong].abs().mean()
    held = close(got[wrong].abs(), bound, tolerance)
    beyond = (right[wrong].abs() > bound) & (right[wrong] * got[wrong] > 0)
    within = right[~wrong].abs() <= bound * (1 + tolerance)
    if held and bool(beyond.all()) and bool(within.all()):
        return Relation(("bounded",), None, f"{float(bound):.4g}")
    return None


def _unfitted(evidence: Evidence) -> Relation:
    got, right = evidence.got[0], evidence.right[0]
    by_chance = 4 * evidence.tolerance  # the part of the elements at which another formula fits
    off = float((got - right).norm() / right.norm())
    if off < 1e-2:
        return Relation(("approximate",), off)
    fit = int((~evidence.wrong).sum())
    return Relation(("unknown",) if fit <= by_chance * evidence.wrong.numel() else ("some",))


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


# Of the wrong shape, or of another input


def exchanged(places: Sequence[int], is_that_of: Callable[[int, int], bool]) -> dict[int, int]:
    """The first two inputs that have each other's gradient."""
    for one, other in combinations(places, 2):
        if is_that_of(one, other) and is_that_of(other, one):
            return {one: other, other: one}
    return {}


def is_alike(found: object, right: Tensor) -> bool:
    """Whether a single gradient is another one, in shape and values."""
    if not isinstance(found, Tensor) or found.shape != right.shape:
        return False
    return torch.allclose(found.double(), right, rtol=1e-4, atol=1e-8)


def reshaped(returned: Tensor, right: Tensor) -> Relation | None:
    """A gradient of the broadcast shape, or of the transposed one."""
    for count in range(1, returned.ndim + 1):
        for dims in combinations(range(returned.ndim), count):
            if is_alike(returned.sum(dims), right):
                return Relation(("unsummed",), None, str(dims[0] if len(dims) == 1 else dims))
    # Of a forward that is flat, as of a sign, no value tells what is right; the shape does.
    is_flat = returned.shape[::-1] == right.shape and not right.any()
    is_transposed = returned.ndim == 2 and (is_flat or is_alike(returned.T, right))
    return Relation(("transposed",)) if is_transposed else None
