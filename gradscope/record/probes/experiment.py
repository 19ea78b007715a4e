"""The experiment: which calls of a Function are made, and what they show of its backward.

A right Function costs three forwards for a central difference, two backwards for two
grad_outputs, and one forward under autograd, whose gradient says which elements are off: it is
believed only where the central difference agrees with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from gradscope.facts import FunctionCheck
from gradscope.record.probes import slopes
from gradscope.record.probes.blame import Watcher, blame, named
from gradscope.record.probes.calls import (
    Calls,
    Cotangent,
    Gradients,
    Made,
    NoVerdict,
    Point,
    TooFew,
)
from gradscope.record.probes.relations import Evidence, Relation, condition, relate, wrong_at
from gradscope.record.probes.rewrite import template
from gradscope.record.probes.slopes import Slope, direction, nudged, signs, slope

DTYPES = (torch.float64, torch.float32)
# Gradients that two formulas compute in the same precision, where the numbers agree otherwise.
_ELEMENTWISE = {torch.float64: 1e-4, torch.float32: 2e-3}


def examined(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apply: Callable[..., Any]
) -> tuple[FunctionCheck, ...]:
    """One check for each input that needs a gradient. Nothing is raised: a Function that cannot
    be called so has the verdict unknown."""
    calls = Calls(cls, args, kwargs, apply, DTYPES[0])
    why = ""
    for calls.dtype in DTYPES:
        try:
            return tuple(_Experiment(calls).checks())
        except TooFew as error:
            return (_too_few(calls, error),)
        except NoVerdict as reason:
            why = str(reason)
            break
        except Exception as fault:
            why = f"{type(fault).__name__}: {fault}"
    return (
        FunctionCheck(
            cls.__name__, "unknown", 0, detail=why, calls=calls.forwards + calls.backwards
        ),
    )


def _too_few(calls: Calls, error: TooFew) -> FunctionCheck:
    cls = calls.cls
    found = blame(cls, Watcher(calls.formula), None, error.got)
    names = calls.names()
    return FunctionCheck(
        cls.__name__,
        "wrong",
        0,
        input=names.get(error.got, f"argument {error.got}"),
        position=error.got,
        relations=("count",),
        detail=f"{error.got} of {error.expected}",
        location=found.location,
        forward=found.forward,
        node=f"{cls.__name__}Backward",
        bad=1,
        numel=1,
        dtype=str(calls.dtype).removeprefix("torch."),
        calls=calls.forwards + calls.backwards,
    )


@dataclass(frozen=True, slots=True)
class _Truth:
    """The right gradients for both grad_outputs and for ones, one tensor for each input; and where
    they come from, in words. `whole`: they are single numbers along a direction."""

    right: tuple[list[Tensor], list[Tensor]]
    unit: list[Tensor]
    words: str
    tolerance: float
    noise: float = 0.0
    whole: bool = False


class _Experiment:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.generator = torch.Generator().manual_seed(0)
        self.precision = calls.dtype
        self.point = calls.start()
        self.base, self.slope = self._first_slope()
        smooth = self.slope.smooth
        if not bool(smooth.any()):
            raise NoVerdict("the forward has a kink in every direction that was tried")
        # An output at a kink has no derivative to compare with: no gradient is sent into it.
        self.cotangents = tuple(signs(self.base.values, self.generator) * smooth for _ in range(2))
        self.names = calls.names()
        self.edges: list[Tensor] | None = None  # where neither gradient is finite, nor the slope

    def _first_slope(self) -> tuple[Made, Slope]:
        base = self.calls.forward(self.point)
        found = self._slope_at(base)
        if found.single and self.precision is torch.float64:
            self.precision = torch.float32
            found = self._slope_at(base)
        elif not bool(found.smooth.any()):
            self.point = nudged(self.point, self.generator)
            base = self.calls.forward(self.point)
            found = self._slope_at(base)
        return base, found

    def _slope_at(self, base: Made, along: Point | None = None) -> Slope:
        along = along if along is not None else direction(self.point, self.generator)
        return slope(self.calls, self.point, base, along, self.precision)

    # What is found

    def checks(self) -> Iterator[FunctionCheck]:
        returned = [self.calls.backward(self.base, v) for v in self.cotangents[:1]]
        misshapen = [place for place, raw in enumerate(returned[0]) if not self._fits(place, raw)]
        if misshapen:
            yield from self._misshapen(returned[0], misshapen)
            return
        broken = self._not_finite(returned[0])
        if broken is not None:
            yield broken
            return
        returned.append(self.calls.backward(self.base, self.cotangents[1]))
        got = tuple(
            [self._adapted(place, raw) for place, raw in enumerate(one)] for one in returned
        )
        truth = self._truth(got)
        if truth is None:
            yield from (self._check(place, "right") for place in range(len(self.point)))
            return
        wrong = [self._wrong(place, got, truth) for place in range(len(self.point))]
        if not any(bool(one.any()) for one in wrong):
            yield from (self._check(place, "right") for place in range(len(self.point)))
            return
        watcher, again = self._watched()
        if not self._repeats(returned[0], again):
            yield self._check(
                0, "unknown", relations=("nondeterministic",), detail="two backward runs differ"
            )
            return
        yield from self._explained(got, truth, wrong, watcher, again)

    def _explained(
        self,
        got: tuple[list[Tensor], ...],
        truth: _Truth,
        wrong: list[Tensor],
        watcher: Watcher,
        again: Gradients,
    ) -> Iterator[FunctionCheck]:
        places = [place for place, one in enumerate(wrong) if bool(one.any())]
        identity = self._is_identity()
        surrogates = [
            p
            for p in places
            if not bool(truth.unit[p].count_nonzero())
            and not any(bool(r[p].count_nonzero()) for r in truth.right)
        ]
        swapped = self._swapped(places, got, truth)
        for place in range(len(self.point)):
            if place not in places:
                yield self._check(place, "right")
                continue
            evidence = self._evidence(place, got, truth)
            tensors = self._named(place) if not truth.whole else {}
            if again[place] is None:
                relation = Relation(("none",))
            elif place in surrogates:
                relation = Relation(("surrogate",))
            elif place in swapped:
                relation = Relation(("swapped",), None, self._name(swapped[place]))
            else:
                relation = relate(evidence, tensors)
                if relation.kinds[-1] in ("some", "unknown", "extra", "missing") and not (
                    identity or surrogates
                ):
                    relation = self._saved_wrongly(place, truth) or relation
            if identity:
                relation = replace(relation, kinds=("identity", *relation.kinds))
            if relation.kinds[-1] == "some":
                relation = replace(relation, detail=condition(wrong[place], tensors))
            reason = str(getattr(self.calls.cls, "gradscope_ok", "") or "")
            meant = identity or surrogates or reason or "bounded" in relation.kinds
            if relation.kinds == ("none",) and not reason:
                meant = False
            found = blame(self.calls.cls, watcher, again[place], self.calls.positions[place])
            yield replace(
                self._measured(place, evidence, wrong[place], truth),
                verdict="intended" if meant else "wrong",
                relations=relation.kinds,
                factor=relation.factor,
                factor_name=self._size(relation.factor, place),
                detail=relation.detail,
                location=found.location,
                forward=found.forward,
                op=found.op,
                reason=reason,
                rewrite=template(relation, watcher.scope, tuple(self.point[place].shape)),
            )

    def _check(self, place: int, verdict: str, **facts: Any) -> FunctionCheck:
        calls, cls = self.calls, self.calls.cls
        known: dict[str, Any] = {
            "input": self._name(place),
            "position": calls.positions[place],
            "node": f"{cls.__name__}Backward",
            "shape": tuple(self.point[place].shape),
            "numel": self.point[place].numel(),
            "dtype": str(calls.dtype).removeprefix("torch."),
            "epsilon": self.slope.step,
            "tolerance": _ELEMENTWISE[self.precision],
            "calls": calls.forwards + calls.backwards,
        }
        return FunctionCheck(cls.__name__, verdict, 0, **{**known, **facts})

    def _measured(
        self, place: int, evidence: Evidence, wrong: Tensor, truth: _Truth
    ) -> FunctionCheck:
        """The worst element, with both numbers, for the grad_output that shows it best."""
        got, right = max(
            zip(evidence.got, evidence.right, strict=True),
            key=lambda pair: float((pair[0] - pair[1]).abs().max()),
        )
        flat = int((got - right).abs().reshape(-1).argmax())
        index = _index(flat, got.shape)
        facts: dict[str, Any] = {
            "got": float(got.reshape(-1)[flat]),
            "right": float(right.reshape(-1)[flat]),
        }
        if not truth.whole:
            facts |= {"index": index, "at": float(self.point[place].reshape(-1)[flat])}
            facts |= {"bad": int(wrong.sum())}
        else:
            facts |= {"bad": self.point[place].numel()}
        return self._check(place, "wrong", truth=truth.words, **facts)

    # The right gradient

    def _truth(self, got: tuple[list[Tensor], ...]) -> _Truth | None:
        """The right gradients; None where the difference quotient finds nothing wrong."""
        ones = torch.ones_like(self.base.values) * self.slope.smooth
        agrees = all(self._agree(g, v) for g, v in zip(got, self.cotangents, strict=True))
        tape = self.calls.taped(self.point, self.base)
        if tape is not None:
            right = tuple(self._double(tape(v)) for v in self.cotangents)
            if all(self._agree(r, v) for r, v in zip(right, self.cotangents, strict=True)):
                truth = _Truth(
                    (right[0], right[1]),
                    self._double(tape(ones)),
                    "autograd through forward, which a central difference confirms",
                    _ELEMENTWISE[self.precision],
                )
                return truth if not agrees or self._holds_at_suspects(got, truth) else None
        if agrees:
            return None
        return self._local_truth() or self._number_truth()

    def _double(self, gradients: list[Tensor]) -> list[Tensor]:
        return [self._inside(p, g.detach().to(torch.float64)) for p, g in enumerate(gradients)]

    def _agree(
        self, gradients: list[Tensor], cotangent: Cotangent, found: Slope | None = None
    ) -> bool:
        found = found or self.slope
        parts = [g * d for g, d in zip(gradients, found.direction, strict=True)]
        here = sum(float(part.sum()) for part in parts)
        there = found.along(cotangent)
        spread = sum(float(part.square().sum()) for part in parts) ** 0.5
        noise = found.noise * float(cotangent.norm())
        size = max(abs(here), abs(there), min(spread, 10 * max(abs(here), abs(there))))
        return abs(here - there) <= slopes.TOLERANCES[self.precision] * size + noise

    def _holds_at_suspects(self, got: tuple[list[Tensor], ...], truth: _Truth) -> bool:
        """All in all the gradient is right, and autograd's differs at a few elements: these alone
        decide, unless they are at a kink, where any slope between left and right will do."""
        wrong = [self._wrong(place, got, truth) for place in range(len(self.point))]
        if not any(bool(one.any()) for one in wrong):
            return False
        along = [d * w for d, w in zip(direction(self.point, self.generator), wrong, strict=True)]
        found = self._slope_at(self.base, along)
        cotangents = [v * found.smooth for v in self.cotangents]
        if not bool((found.smooth | ~self.slope.smooth).all()):
            return False
        return any(not self._agree(g, v, found) for g, v in zip(got, cotangents, strict=True))

    def _local_truth(self) -> _Truth | None:
        """Where each output depends on its own element of the one input, two directions show it,
        and the difference quotients are the derivative of every element."""
        if len(self.point) != 1 or self.base.values.numel() != self.point[0].numel():
            return None
        other = self._slope_at(self.base)
        rates = [s.values / s.direction[0].reshape(-1) for s in (self.slope, other)]
        smooth = self.slope.smooth & other.smooth
        sizes = self.slope.direction[0].abs().min()
        noise = float(2 * self.slope.noise / sizes) if float(sizes) else 0.0
        tolerance = slopes.TOLERANCES[self.precision]
        if bool((wrong_at(rates[0], rates[1], tolerance, noise) & smooth).any()):
            return None
        rate = torch.where(smooth, rates[0], torch.zeros_like(rates[0]))
        shape = self.point[0].shape
        right = [[(rate * v).view(shape).double()] for v in self.cotangents]
        words = f"central difference with relative step {self.slope.step:g}"
        return _Truth((right[0], right[1]), [rate.view(shape).double()], words, tolerance, noise)

    def _number_truth(self) -> _Truth:
        """One number for each input: the derivative along a direction."""
        found = {0: self.slope} if len(self.point) == 1 else {}
        for place in range(len(self.point) if not found else 0):
            along = [
                d if other == place else torch.zeros_like(d)
                for other, d in enumerate(self.slope.direction)
            ]
            found[place] = self._slope_at(self.base, along)
        right = [
            [torch.tensor([found[p].along(v)], dtype=torch.float64) for p in range(len(self.point))]
            for v in self.cotangents
        ]
        ones = torch.ones_like(self.base.values) * self.slope.smooth
        unit = [
            torch.tensor([found[p].along(ones)], dtype=torch.float64)
            for p in range(len(self.point))
        ]
        words = f"central difference along a random direction, relative step {self.slope.step:g}"
        noise = self.slope.noise * float(self.cotangents[0].norm())
        return _Truth(
            (right[0], right[1]), unit, words, slopes.TOLERANCES[self.precision], noise, whole=True
        )

    def _evidence(self, place: int, got: tuple[list[Tensor], ...], truth: _Truth) -> Evidence:
        first, second = (one[place] for one in got)
        if truth.whole:
            along = self.slope.direction[place].double()
            first, second = ((g * along).sum().reshape(1) for g in (first, second))
        local = (
            not truth.whole
            and self.base.values.numel() == first.numel()
            and bool(self.slope.smooth.all())
            and not bool(
                wrong_at(
                    truth.right[0][place].reshape(-1) / self.cotangents[0].double(),
                    truth.unit[place].reshape(-1),
                    truth.tolerance,
                    truth.noise,
                ).any()
            )
        )
        cotangents = tuple(v.double() for v in self.cotangents)
        return Evidence(
            (first, second),
            (truth.right[0][place], truth.right[1][place]),
            truth.unit[place],
            (cotangents[0], cotangents[1]),
            truth.tolerance,
            truth.noise,
            local,
        )

    def _wrong(self, place: int, got: tuple[list[Tensor], ...], truth: _Truth) -> Tensor:
        evidence = self._evidence(place, got, truth)
        pairs = zip(evidence.got, evidence.right, strict=True)
        return torch.stack([wrong_at(g, r, truth.tolerance, truth.noise) for g, r in pairs]).any(0)

    # What backward returned

    def _fits(self, place: int, raw: Any) -> bool:
        """Whether autograd takes the gradient: the input's shape, or one that it sums down to it."""
        shape = self.point[place].shape
        return raw is None or (isinstance(raw, Tensor) and _sums_to(raw.shape, shape))

    def _adapted(self, place: int, raw: Any) -> Tensor:
        like = self.point[place]
        if raw is None:
            return torch.zeros_like(like, dtype=torch.float64)
        dense = raw.to_dense() if raw.is_sparse else raw
        return self._inside(place, dense.detach().to(torch.float64).sum_to_size(like.shape))

    def _inside(self, place: int, gradient: Tensor) -> Tensor:
        """Without the elements at the edge of the forward's domain: there is no right gradient."""
        if self.edges is None:
            return gradient
        return torch.where(self.edges[place], torch.zeros_like(gradient), gradient)

    def _misshapen(self, raw: Gradients, places: list[int]) -> Iterator[FunctionCheck]:
        watcher, again = self._watched()
        tape = self.calls.taped(self.point, self.base)
        right = self._double(tape(self.cotangents[0])) if tape is not None else None
        for place in places:
            returned, shape = raw[place], tuple(self.point[place].shape)
            got = tuple(returned.shape) if isinstance(returned, Tensor) else type(returned).__name__
            relation = Relation(("shape",), None, f"{got} where {shape} is needed")
            if isinstance(returned, Tensor) and right is not None:
                relation = _summed(returned.double(), right[place]) or relation
            found = blame(self.calls.cls, watcher, again[place], self.calls.positions[place])
            yield self._check(
                place,
                "wrong",
                relations=("shape", *(kind for kind in relation.kinds if kind != "shape")),
                detail=relation.detail
                if relation.kinds != ("transposed",)
                else f"{got} where {shape} is needed",
                bad=self.point[place].numel(),
                location=found.location,
                forward=found.forward,
                op=found.op,
                rewrite=template(
                    relation,
                    watcher.scope,
                    tuple(returned.shape) if isinstance(returned, Tensor) else shape,
                ),
            )

    def _not_finite(self, raw: Gradients) -> FunctionCheck | None:
        """A NaN or inf in the gradient, where the forward is smooth. Elements at which it is not
        (the edge of a domain) are left out of the comparison."""
        bad = [~torch.isfinite(self._adapted(place, one)) for place, one in enumerate(raw)]
        place = next((place for place, one in enumerate(bad) if bool(one.any())), None)
        if place is None:
            return None
        if not bool(self.slope.smooth.all()):
            self.edges = bad
            along = [d * ~edge for d, edge in zip(self.slope.direction, bad, strict=True)]
            self.slope = self._slope_at(self.base, along)
            return None
        flat = int(bad[place].reshape(-1).to(torch.uint8).argmax())
        along = [torch.zeros_like(x) for x in self.point]
        along[place].view(-1)[flat] = self.slope.direction[place].reshape(-1)[flat]
        alone = self._slope_at(self.base, along)
        if not bool(alone.smooth.all()):
            raise NoVerdict("the forward is not smooth where the gradient is not finite")
        watcher, again = self._watched()
        found = blame(self.calls.cls, watcher, again[place], self.calls.positions[place])
        size = float(self.slope.direction[place].reshape(-1)[flat])
        return self._check(
            place,
            "wrong",
            relations=("non-finite",),
            bad=int(bad[place].sum()),
            index=_index(flat, self.point[place].shape),
            at=float(self.point[place].reshape(-1)[flat]),
            got=float(self._adapted(place, raw[place]).reshape(-1)[flat]),
            right=alone.along(self.cotangents[0]) / size,
            truth=f"central difference with relative step {alone.step:g}",
            location=found.location,
            forward=found.forward,
            op=found.op,
        )

    def _watched(self) -> tuple[Watcher, Gradients]:
        """The first backward again, with its ops observed."""
        watcher = Watcher(self.calls.formula)
        with watcher:
            return watcher, self.calls.backward(self.base, self.cotangents[0])

    def _repeats(self, first: Gradients, second: Gradients) -> bool:
        pairs = [
            (self._adapted(p, a), self._adapted(p, b))
            for p, (a, b) in enumerate(zip(first, second, strict=True))
        ]
        return all(torch.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True) for a, b in pairs)

    # Further experiments with a wrong one

    def _is_identity(self) -> bool:
        """The forward passes an input on as it is: it was written for its backward."""
        return any(
            x.numel() == self.base.values.numel()
            and torch.equal(x.reshape(-1), self.base.values)
            and torch.allclose(
                self.slope.values, self.slope.direction[place].reshape(-1), rtol=1e-3
            )
            for place, x in enumerate(self.point)
        )

    def _swapped(
        self, places: list[int], got: tuple[list[Tensor], ...], truth: _Truth
    ) -> dict[int, int]:
        for one, other in combinations(places, 2):
            if truth.whole or truth.right[0][one].shape != truth.right[0][other].shape:
                continue
            crossed = [
                wrong_at(g[a], r[b], truth.tolerance)
                for g, r in zip(got, truth.right, strict=True)
                for a, b in ((one, other), (other, one))
            ]
            if not any(bool(w.any()) for w in crossed):
                return {one: other, other: one}
        return {}

    def _saved_wrongly(self, place: int, truth: _Truth) -> Relation | None:
        """Backward with another tensor in the place of one that it had saved: if that gives the
        right gradient, the wrong one was saved."""
        if truth.whole:
            return None
        known = self._tensors()
        for index, saved in enumerate(self.base.node.saved_tensors):
            if not isinstance(saved, Tensor) or not saved.is_floating_point():
                continue
            for name, tensor in self._substitutes(saved, known):
                if not self.calls.left:
                    return None
                ctx = _Substituted(self.base.node, index, tensor.to(saved.dtype))
                try:
                    raw = self.calls.backward(self.base, self.cotangents[0], ctx)
                except NoVerdict:
                    return None
                except Exception:
                    continue
                fits = self._fits(place, raw[place]) and raw[place] is not None
                if fits and not bool(
                    wrong_at(
                        self._adapted(place, raw[place]),
                        truth.right[0][place],
                        truth.tolerance,
                        truth.noise,
                    ).any()
                ):
                    was = named(known, saved) or f"saved_tensors[{index}]"
                    return Relation(("saved",), None, f"{was} where {name} is needed")
        return None

    def _substitutes(self, saved: Tensor, known: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        alike = [
            (name, t)
            for name, t in known.items()
            if t.shape == saved.shape and not torch.equal(t, saved.to(t.dtype))
        ]
        yield from sorted(alike, key=lambda pair: pair[0] != "the output")
        if saved.ndim == 2 and saved.shape[0] == saved.shape[1] > 1:
            yield "its transpose", saved.mT

    def _tensors(self) -> dict[str, Tensor]:
        """The Function's inputs and its outputs at the point, by name."""
        found = {}
        for position, arg in enumerate(self.calls.args):
            if isinstance(arg, Tensor) and arg.is_floating_point():
                inside = position in self.calls.positions
                value = self.point[self.calls.positions.index(position)] if inside else arg.detach()
                found[self.names.get(position, f"argument {position}")] = value.to(torch.float64)
        for place in self.base.live:
            name = "the output" if len(self.base.live) == 1 else f"output {place}"
            found[name] = self.base.outputs[place].detach().to(torch.float64)
        return found

    def _named(self, place: int) -> dict[str, Tensor]:
        shape = self.point[place].shape
        tensors = {name: t for name, t in self._tensors().items() if t.shape == shape}
        own = self._name(place)
        return {**({own: tensors[own]} if own in tensors else {}), **tensors}

    def _name(self, place: int) -> str:
        position = self.calls.positions[place]
        return self.names.get(position, f"argument {position}")

    def _size(self, factor: float | None, place: int) -> str:
        """What a factor is, where it is a size of the problem."""
        if factor is None:
            return ""
        x, outputs = self.point[place], self.base.values.numel()
        sizes = {
            f"the number of elements of `{self._name(place)}`": x.numel(),
            "the batch size": x.shape[0] if x.ndim else 1,
            f"the last dimension of `{self._name(place)}`": x.shape[-1] if x.ndim else 1,
            "the number of outputs": outputs,
        }
        for name, size in sizes.items():
            if size > 3 and abs(factor / size - 1) < 1e-3:
                return name
            if size > 3 and abs(factor * size - 1) < 1e-3:
                return f"1 / {name}"
        return ""


class _Substituted:
    """A ctx with one saved tensor exchanged."""

    def __init__(self, node: Any, index: int, tensor: Tensor) -> None:
        saved = list(node.saved_tensors)
        saved[index] = tensor
        self._node, self.saved_tensors = node, tuple(saved)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """torch.unravel_index would import sympy, for a second."""
    index: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        index.append(rest)
    return tuple(reversed(index))


def _sums_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(shape) < len(target):
        return False
    tail = shape[len(shape) - len(target) :]
    return all(b in (a, 1) for a, b in zip(tail, target, strict=True))


def _summed(returned: Tensor, right: Tensor) -> Relation | None:
    """A gradient of the broadcast shape, or of the transposed one."""
    for count in range(1, returned.ndim + 1):
        for dims in combinations(range(returned.ndim), count):
            total = returned.sum(dims)
            if total.shape == right.shape and torch.allclose(total, right, rtol=1e-4, atol=1e-8):
                return Relation(("unsummed",), None, str(dims[0] if len(dims) == 1 else dims))
    if returned.ndim == right.ndim == 2 and returned.T.shape == right.shape:
        if torch.allclose(returned.T, right, rtol=1e-4, atol=1e-8):
            return Relation(("transposed",))
    return None
