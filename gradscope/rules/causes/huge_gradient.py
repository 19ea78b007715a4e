"""A finite gradient that one op makes far larger than all others."""

import math
from collections.abc import Iterator

from gradscope.facts import (
    Finding,
    Fix,
    Leap,
    Magnitudes,
    Measured,
    Phase,
    Root,
    Severity,
    Steep,
    Subject,
    Symptom,
    Trace,
    Trouble,
    plural,
    text_of,
)
from gradscope.facts import requests as ask
from gradscope.rules import fixes
from gradscope.rules.reading import growths, measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases

MOST = 3  # places told of a run


class HugeGradient(Rule):
    """
    ## What it does
    Finds an op whose backward multiplies a finite gradient by far more than its other elements,
    its earlier steps and the units of its values explain: it stands next to a point where its
    slope is infinite, and an epsilon alone keeps it off. `F.normalize` of a vector of zeros divides
    by 1e-12, `sqrt(x + 1e-12)` has slope 5e5 at 0, `1 / (x + 1e-8)` has slope 1e16. And a step
    whose data are 10,000 times as large as what was read before, where the loss leaps.

    ## Why is this bad?
    Nothing is NaN, and the loss looks well. But the gradient of every weight below is that of the
    few elements, 1e12 times as large as what the others ask for. A step along it ruins the weights;
    clipping leaves only its direction; Adam's averages remember it for a thousand steps.

    ## Example
    ```python
    import torch

    x = torch.tensor([0.0, 0.5, 2.0], requires_grad=True)
    - loss = torch.sqrt(x + 1e-12).mean()
    + loss = torch.sqrt((x + 1e-12).clamp_min(1e-11)).mean()
    loss.backward()
    ```

    ## Fix safety
    Unsafe: elements next to the point get no gradient any more. Their values stay as they are, or
    move by about the epsilon.
    """

    code = "GS406"
    name = "huge-gradient"
    phase = Phase.BACKWARD

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        # What is not finite at that step has a rule of its own.
        broken = min((symptom.step for root in roots for symptom in root.symptoms), default=None)
        seen: set[object] = set()
        for leap in sorted(magnitudes.leaps, key=lambda one: one.step):
            place, crosses = leap.call.location, growths.crosses_pole(leap, trace.steps)
            if not (crosses or growths.is_huge(leap) or growths.is_near_pole(leap, trace.steps)):
                continue
            if (broken is None or leap.step < broken) and place not in seen and len(seen) < MOST:
                seen.add(place)
                yield self._about(leap, magnitudes, crosses=crosses)
        outlier = growths.outlying(magnitudes.leaps, trace.steps)
        if outlier is not None and not seen and broken is None:
            yield self._about_data(outlier, trace)

    def _about_data(self, leap: Leap, trace: Trace) -> Finding:
        op, largest = phrases.spelled(leap.call.op), text_of(leap.explained, 3)
        before, loss = growths.losses_until(leap.step, trace.steps)
        leapt = f"the loss leaps from {text_of(max(before), 3)} to {text_of(loss, 3)}"
        return self.found(
            f"`{op}` is given numbers up to {largest} at step {leap.step}, and {leapt}",
            f"Up to then what it read gave slopes of at most {text_of(leap.earlier or 0.0, 3)}: the"
            " numbers themselves are others, and no op makes them so large. A column that was"
            " constant where its spread was measured does so, or one sample of another unit.",
            leap.call,
            severity=Severity.WARNING,  # the data may be so
            phase=Phase.DATA,
            step=leap.step,
            label=f"reads up to {largest}",
            evidence=measurements.fields_of(leap, "explained", "earlier", "leaf", "norm"),
            numbers=(f"gradient of `{leap.leaf}` has norm {text_of(leap.norm, 4)}",),
            symptoms=(Symptom(Trouble.HUGE, Subject.GRADIENT, leap.step, leap.leaf),),
            fixes=(_OF_USUAL_SIZE,),
        )

    def _about(self, leap: Leap, magnitudes: Magnitudes, *, crosses: bool) -> Finding:
        steep = leap.steep
        op, count = phrases.spelled(leap.call.op), phrases.of_total(steep.count, steep.numel)
        totals = magnitudes.totals()
        slope, norm = text_of(steep.slope, 3), text_of(leap.norm, 3)
        symptom = Symptom(Trouble.HUGE, Subject.GRADIENT, leap.step, leap.leaf)
        operand = steep.operand
        own = steep.own and not leap.by_factor
        maker = f"a factor made by `{op}`" if leap.by_factor else f"the backward of `{op}`"
        return self.found(
            f"{maker} makes the gradient {slope} times as large ({count});"
            f" that of `{leap.leaf}` has norm {norm}",
            _why(leap, op, crosses=crosses),
            leap.call,
            severity=Severity.WARNING if growths.is_clipped(magnitudes) else Severity.ERROR,
            step=leap.step,
            label=_label(leap.steep),
            evidence={
                **measurements.fields_of(steep, "slope", "others", "index", "numel"),
                "steep": steep.count,
                **measurements.fields_of(leap, "earlier", "leaf", "norm"),
                "total_norm": totals[leap.step] if leap.step < len(totals) else None,
            },
            measured=Measured(
                ((operand.role, operand.at),) if operand and operand.at is not None else (),
                operand.dtype if operand else None,
            ),
            numbers=tuple(_numbers(leap)),
            tensors=(operand,) if operand is not None else (),
            symptoms=(symptom,),
            fixes=(
                *(_kept_on_one_side(leap) if crosses else ()),
                ask.TameSlope(operand.role if operand else "", own, *growths.bound_of(steep)),
                ask.ClipNorm(growths.clip_bound(totals[: leap.step])),
            ),
        )


_OF_USUAL_SIZE = Fix(
    "data",
    "bring it to the size of what was read before: divide by a spread that is not 0, or leave it"
    " out",
    "unsafe",
)
_CROSSES = (
    ". The divisor {lies}: on its way from one to the other it passes the pole of the quotient,"
    " where the loss leaps."
)
_ON_ONE_SIDE = Fix(
    "graph",
    "keep the divisor on one side of 0 by what it is made of",
    "unsafe",
    "least + torch.nn.functional.softplus(x)",
)


def _kept_on_one_side(leap: Leap) -> Iterator[Fix]:
    operand = leap.steep.operand
    if operand is not None and leap.crossed and (operand.max or 0.0) < 0:  # it was above 0 before
        yield from fixes.as_logarithm(operand)
    yield _ON_ONE_SIDE


def _label(steep: Steep) -> str:
    here = f"slope {text_of(steep.slope, 3)} at {phrases.place(steep.index) or 'its one element'}"
    return f"{here}, {text_of(steep.others, 3)} at most elsewhere" if steep.others else here


def _why(leap: Leap, op: str, *, crosses: bool) -> str:
    steep = leap.steep
    if steep.others is not None:
        times = text_of(steep.slope / steep.others, 3)
        beside = f"That is {times} times the slope at its other elements."
    elif leap.earlier is not None and leap.earlier < steep.slope:
        times = text_of(steep.slope / leap.earlier, 3)
        beside = f"That is {times} times the slope that it had at the steps before."
    else:
        beside = "No element of it has another slope."
    near = ""
    if steep.near is not None:
        end = "; only an epsilon or rounding keeps it off."
        if crosses:
            lies = (
                "was on the other side of 0 before" if leap.crossed else "lies on both sides of 0"
            )
            end = _CROSSES.format(lies=lies)
        near = (
            f" The operand is {text_of(steep.near, 3)} from the point where the slope of `{op}` is"
            f" infinite{end}"
        )
    return (
        f"Everything is finite, but backward multiplies by {text_of(steep.slope, 3)} here. {beside}"
        f"{near} The gradient of `{leap.leaf}` is that of"
        f" {'this element' if steep.count == 1 else 'these elements'} alone, and a step along it"
        " undoes what the others ask for."
    )


def _numbers(leap: Leap) -> Iterator[str]:
    steep = leap.steep
    yield (
        f"slope {text_of(steep.slope, 3)} at {plural(steep.count, 'element')}"
        + (f", {text_of(steep.others, 3)} at most elsewhere" if steep.others else "")
    )
    if steep.operand is not None and steep.operand.at is not None:
        ends = ", ".join(
            f"{name} {text_of(value, 3)}"
            for name, value in (("min", steep.operand.min), ("max", steep.operand.max))
            if value is not None and math.isfinite(value)
        )
        at = f"{steep.operand.called or steep.operand.role}{phrases.place(steep.index)}"
        yield f"{at} = {text_of(steep.operand.at, 4)}" + (f" ({ends})" if ends else "")
    yield (
        f"gradient of `{leap.leaf}` has norm {text_of(leap.norm, 4)},"
        f" {text_of(leap.carried, 3)} times what came to `{phrases.spelled(leap.call.op)}` there"
    )
