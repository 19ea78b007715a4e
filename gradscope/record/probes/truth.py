"""The right gradient: by autograd where differences confirm it, else by differences alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradscope.record.probes import slopes
from gradscope.record.probes.calls import Cotangent
from gradscope.record.probes.relations import Evidence, wrong_at
from gradscope.record.probes.setting import ELEMENTWISE, Setting
from gradscope.record.probes.slopes import Slope, direction

Both = tuple[list[Tensor], list[Tensor]]  # one list of gradients for each of the two grad_outputs


@dataclass(frozen=True, slots=True)
class Truth:
    """The right gradients for both grad_outputs and for ones, one tensor for each input; and where
    they come from, in words. `whole`: they are single numbers along a direction."""

    right: Both
    unit: list[Tensor]
    words: str
    tolerance: float
    noise: float = 0.0
    whole: bool = False


def right_gradients(setting: Setting, got: Both) -> Truth | None:
    """The right gradients; None where the difference quotient finds nothing wrong."""
    agrees = all(agree(setting, g, v) for g, v in zip(got, setting.cotangents, strict=True))
    tape = setting.calls.taped(setting.point, setting.base)
    if tape is not None:
        first, second = (setting.doubled(tape(v)) for v in setting.cotangents)
        right = (first, second)
        if all(agree(setting, r, v) for r, v in zip(right, setting.cotangents, strict=True)):
            truth = Truth(
                right,
                setting.doubled(tape(setting.ones)),
                "autograd through forward, which a central difference confirms",
                ELEMENTWISE[setting.precision],
            )
            return truth if not agrees or _holds_at_suspects(setting, got, truth) else None
    if agrees:
        return None
    return _local(setting) or _numbers(setting)


def agree(
    setting: Setting, gradients: list[Tensor], cotangent: Cotangent, found: Slope | None = None
) -> bool:
    """Whether gradients and a difference quotient give the same number along its direction."""
    found = found or setting.slope
    parts = [g * d for g, d in zip(gradients, found.direction, strict=True)]
    here = sum(float(part.sum()) for part in parts)
    there = found.along(cotangent)
    spread = math.sqrt(sum(float(part.square().sum()) for part in parts))
    noise = found.noise * float(cotangent.norm())
    size = max(abs(here), abs(there), min(spread, 10 * max(abs(here), abs(there))))
    return abs(here - there) <= slopes.TOLERANCES[setting.precision] * size + noise


def _holds_at_suspects(setting: Setting, got: Both, truth: Truth) -> bool:
    """All in all the gradient is right, and autograd's differs at a few elements: these alone
    decide, unless they are at a kink, where any slope between left and right will do."""
    wrong = [wrong_elements(setting, place, got, truth) for place in range(len(setting.point))]
    if not any(bool(one.any()) for one in wrong):
        return False
    along = [d * w for d, w in zip(direction(setting.point, setting.generator), wrong, strict=True)]
    found = setting.slope_at(setting.base, along)
    cotangents = [v * found.smooth for v in setting.cotangents]
    if not bool((found.smooth | ~setting.slope.smooth).all()):
        return False
    return any(not agree(setting, g, v, found) for g, v in zip(got, cotangents, strict=True))


def _local(setting: Setting) -> Truth | None:
    """Where each output depends on its own element of the one input, two directions show it,
    and the difference quotients are the derivative of every element."""
    if len(setting.point) != 1 or setting.base.values.numel() != setting.point[0].numel():
        return None
    other = setting.slope_at(setting.base)
    rates = [s.values / s.direction[0].reshape(-1) for s in (setting.slope, other)]
    smooth = setting.slope.smooth & other.smooth
    sizes = setting.slope.direction[0].abs().min()
    noise = float(2 * setting.slope.noise / sizes) if float(sizes) else 0.0
    tolerance = slopes.TOLERANCES[setting.precision]
    if bool((wrong_at(rates[0], rates[1], tolerance, noise) & smooth).any()):
        return None
    rate = torch.where(smooth, rates[0], torch.zeros_like(rates[0]))
    shape = setting.point[0].shape
    right = [[(rate * v).view(shape).double()] for v in setting.cotangents]
    words = f"central difference with relative step {setting.slope.step:g}"
    return Truth((right[0], right[1]), [rate.view(shape).double()], words, tolerance, noise)


def _numbers(setting: Setting) -> Truth:
    """One number for each input: the derivative along a direction."""
    found: list[Slope] = []
    rest = setting.slope
    for place in range(len(setting.point) - 1):
        if setting.calls.left < 3:
            break  # what is left is put down to the next input
        along = [
            d if other == place else torch.zeros_like(d)
            for other, d in enumerate(setting.slope.direction)
        ]
        found.append(setting.slope_at(setting.base, along))
        # The slope along all inputs together is the sum of the slopes along each.
        rest = replace(rest, values=rest.values - found[-1].values)
    found.append(rest)
    none = replace(rest, values=torch.zeros_like(rest.values))
    found += [none] * (len(setting.point) - len(found))
    right = [
        [torch.tensor([found[p].along(v)], dtype=torch.float64) for p in range(len(setting.point))]
        for v in setting.cotangents
    ]
    unit = [
        torch.tensor([found[p].along(setting.ones)], dtype=torch.float64)
        for p in range(len(setting.point))
    ]
    words = f"central difference along a random direction, relative step {setting.slope.step:g}"
    noise = setting.slope.noise * float(setting.cotangents[0].norm())
    return Truth(
        (right[0], right[1]), unit, words, slopes.TOLERANCES[setting.precision], noise, whole=True
    )


def evidence_of(setting: Setting, place: int, got: Both, truth: Truth) -> Evidence:
    first, second = (one[place] for one in got)
    if truth.whole:
        along = setting.slope.direction[place].double()
        first, second = ((g * along).sum().reshape(1) for g in (first, second))
    local = (
        not truth.whole
        and setting.base.values.numel() == first.numel()
        and bool(setting.slope.smooth.all())
        and not bool(
            wrong_at(
                truth.right[0][place].reshape(-1) / setting.cotangents[0].double(),
                truth.unit[place].reshape(-1),
                truth.tolerance,
                truth.noise,
            ).any()
        )
    )
    cotangents = tuple(v.double() for v in setting.cotangents)
    return Evidence(
        (first, second),
        (truth.right[0][place], truth.right[1][place]),
        truth.unit[place],
        (cotangents[0], cotangents[1]),
        truth.tolerance,
        truth.noise,
        local,
    )


def wrong_elements(setting: Setting, place: int, got: Both, truth: Truth) -> Tensor:
    evidence = evidence_of(setting, place, got, truth)
    pairs = zip(evidence.got, evidence.right, strict=True)
    return torch.stack([wrong_at(g, r, truth.tolerance, truth.noise) for g, r in pairs]).any(0)
