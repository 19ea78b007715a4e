"""Further experiments with a backward that is wrong: in which of the ways that need one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from gradscope.facts import FunctionCheck, SavedInstead
from gradscope.record.probes.blame import blamed, named
from gradscope.record.probes.calls import Gradients, NoVerdict
from gradscope.record.probes.relations import Relation, wrong_at
from gradscope.record.probes.rewrite import template
from gradscope.record.probes.setting import OUTPUT, Setting
from gradscope.record.probes.truth import Both, Truth


def misshapen(setting: Setting, raw: Gradients, places: list[int]) -> Iterator[FunctionCheck]:
    """Gradients that autograd will not take; one may be right once it is summed or turned."""
    watcher, again = setting.watched()
    tape = setting.calls.taped(setting.point, setting.base)
    right = setting.doubled(tape(setting.cotangents[0])) if tape is not None else None
    for place in places:
        returned, needed = raw[place], tuple(setting.point[place].shape)
        shape = tuple(returned.shape) if isinstance(returned, Tensor) else ()
        got = shape if isinstance(returned, Tensor) else type(returned).__name__
        sizes = f"{got} where {needed} is needed"
        known = None
        if isinstance(returned, Tensor) and right is not None:
            known = _reshaped(returned.double(), right[place])
        relation = known or Relation((), None, sizes)
        check = setting.fact(
            place,
            "wrong",
            relations=("shape", *relation.kinds),
            detail=relation.detail or sizes,
            bad=setting.numel(place),
            rewrite=template(relation, watcher.scope, shape) if known else None,
        )
        position = setting.calls.positions[place]
        yield blamed(check, setting.calls.cls, watcher, again[place], position)


def not_finite(setting: Setting, raw: Gradients) -> FunctionCheck | None:
    """A NaN or inf in the gradient, where the forward is smooth. Elements at which it is not
    (the edge of a domain) are left out of the comparison."""
    bad = [~torch.isfinite(setting.adapted(place, one)) for place, one in enumerate(raw)]
    place = next((place for place, one in enumerate(bad) if bool(one.any())), None)
    if place is None:
        return None
    if not bool(setting.slope.smooth.all()):
        setting.edges = bad
        along = [d * ~edge for d, edge in zip(setting.slope.direction, bad, strict=True)]
        setting.slope = setting.slope_at(setting.base, along)
        return None
    flat = int(bad[place].reshape(-1).to(torch.uint8).argmax())
    along = [torch.zeros_like(x) for x in setting.point]
    size = 0.1 * float(setting.slope.direction[place].reshape(-1)[flat])
    along[place].view(-1)[flat] = size
    alone = setting.slope_at(setting.base, along)
    if not bool(alone.smooth.all()):
        raise NoVerdict("the forward is not smooth where the gradient is not finite")
    watcher, again = setting.watched()
    check = setting.fact(
        place,
        "wrong",
        relations=("non-finite",),
        bad=setting.count(place, bad[place]),
        **setting.whereabouts(place, flat),
        got=float(setting.adapted(place, raw[place]).reshape(-1)[flat]),
        right=alone.along(setting.cotangents[0]) / size,
        truth=f"central difference with relative step {alone.step:g}",
    )
    position = setting.calls.positions[place]
    return blamed(check, setting.calls.cls, watcher, again[place], position)


def is_identity(setting: Setting) -> bool:
    """The forward passes an input on as it is: it was written for its backward."""
    return any(
        x.numel() == setting.base.values.numel()
        and torch.equal(x.reshape(-1), setting.base.values)
        and torch.allclose(
            setting.slope.values, setting.slope.direction[place].reshape(-1), rtol=1e-3
        )
        for place, x in enumerate(setting.point)
    )


def swapped(setting: Setting, places: list[int], got: Both, truth: Truth) -> dict[int, int]:
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


def saved_wrongly(setting: Setting, place: int, truth: Truth) -> Relation | None:
    """Backward with another tensor in the place of one that it had saved: if that gives the
    right gradient, the wrong one was saved."""
    if truth.whole:
        return None
    known = setting.tensors()
    for index, saved in enumerate(setting.base.node.saved_tensors):
        if not isinstance(saved, Tensor) or not saved.is_floating_point():
            continue
        for name, tensor in _substitutes(saved, known):
            if not setting.calls.left:
                return None
            ctx = _Substituted(setting.base.node, index, tensor.to(saved.dtype))
            try:
                raw = setting.calls.backward(setting.base, setting.cotangents[0], ctx)
            except NoVerdict:
                return None
            except Exception:
                continue
            fits = setting.fits(place, raw[place]) and raw[place] is not None
            if fits and not bool(
                wrong_at(
                    setting.adapted(place, raw[place]),
                    truth.right[0][place],
                    truth.tolerance,
                    truth.noise,
                ).any()
            ):
                was = named(known, saved) or f"saved_tensors[{index}]"
                return Relation(("saved",), None, SavedInstead(was, name, name == OUTPUT))
    return None


def _substitutes(saved: Tensor, known: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    alike = [
        (name, t)
        for name, t in known.items()
        if t.shape == saved.shape and not torch.equal(t, saved.to(t.dtype))
    ]
    yield from sorted(alike, key=lambda pair: pair[0] != OUTPUT)
    if saved.ndim == 2 and saved.shape[0] == saved.shape[1] > 1:
        yield "its transpose", saved.mT


class _Substituted:
    """A ctx with one saved tensor exchanged."""

    def __init__(self, node: Any, index: int, tensor: Tensor) -> None:
        saved = list(node.saved_tensors)
        saved[index] = tensor
        self._node, self.saved_tensors = node, tuple(saved)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _reshaped(returned: Tensor, right: Tensor) -> Relation | None:
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
