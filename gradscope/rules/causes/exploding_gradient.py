"""Gradients, or values before there is a gradient, that grow by a steady factor."""

import math
from collections.abc import Iterator

from gradscope.facts import (
    Call,
    Finding,
    Fix,
    Growth,
    Kind,
    Limits,
    Magnitudes,
    Oversized,
    Phase,
    Root,
    Severity,
    Strength,
    Subject,
    Symptom,
    Trace,
    Trouble,
    number,
    plural,
    text_of,
)
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.cutoffs import DOUBLES, LARGEST_SHARE, SHARE_OF_NORM
from gradscope.rules.reading import divergence, growths
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class ExplodingGradient(Rule):
    """
    ## What it does
    Finds a gradient that grows by a steady factor, layer by layer or in time, on its way from the
    loss to the input. Also values that layers in a row make so large, before the first step, that
    the loss compares them with targets of a hundredth of their size.

    ## Why is this bad?
    Backward multiplies by the slope of every layer in turn. Where that product grows, the first
    layers (or the recurrent weights) take steps many orders of magnitude longer than the rest, and
    a few steps later the loss is NaN. The loss itself can be small until then.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    - w = torch.nn.Parameter(torch.randn(32, 32) * 0.7)
    + w = torch.nn.Parameter(torch.nn.init.orthogonal_(torch.empty(32, 32)))
    h = torch.randn(4, 32)
    for _ in range(60):
        h = torch.tanh(h @ w)
    h.square().mean().backward()
    ```

    ## Fix safety
    Unsafe: clipping and another initialisation change the steps that training takes.

    ## Options
    `thresholds: {gradient-growth: 1e4}` in the configuration: growth over the whole way.
    """

    code = "GS401"
    name = "exploding-gradient"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        growth = magnitudes.swelling
        moved = divergence.growth_of_weights(magnitudes.leaves)  # inf where none is known
        has_diverged = self.limits.loss_growth <= moved < math.inf
        if growth and not has_diverged and _overflows(growth, roots, self.limits):
            yield self._about_values(growth, magnitudes, roots[0])
        growing = (
            one
            for one in magnitudes.growths
            if growths.explodes(one, self.limits)
            and not growths.is_made_up_for(one, magnitudes, self.limits)
        )
        if (growth := next(growing, None)) is not None:  # the first step: later ones follow
            yield self._about(growth, magnitudes, roots)
            return
        one = magnitudes.oversized
        is_first = one is not None and all(root.event.step > one.step for root in roots)
        if one is not None and is_first and growths.is_oversized(one, trace.steps):
            yield self._about_first(one, trace)

    def _about(self, growth: Growth, magnitudes: Magnitudes, roots: tuple[Root, ...]) -> Finding:
        step, totals = growth.step, magnitudes.totals()
        is_known = step < len(totals)
        explained = [
            root for root in roots if root.event.phase is Phase.BACKWARD and root.event.step == step
        ]
        leaf = _largest_leaf(magnitudes, step)
        own = Symptom(Trouble.EXPLODING, Subject.GRADIENT, step, leaf or "gradient")
        users = [update.location for update in magnitudes.updates if update.location is not None]
        message, label, why = _words(growth)
        return self.found(
            message,
            why,
            growth.call,
            severity=Severity.WARNING if growths.is_clipped(magnitudes) else Severity.ERROR,
            phase=Phase.BACKWARD,
            step=step,
            label=label,
            related=places(*(("use", one, "takes this gradient") for one in users[-1:])),
            evidence={
                **growths.facts_of(growth),
                "nodes": list(growth.nodes),
                "total_norm": totals[step] if is_known else None,
                "limit": self.limits.gradient_growth,
            },
            numbers=(*phrases.profile(growth), *_totals(totals, step)),
            symptoms=(own, *(symptom for root in explained for symptom in root.symptoms)),
            chain=explained[0].chain if explained else (),
            # Clipping bounds the step and leaves the reason where it is.
            fixes=(
                *_at_the_reason(growth, magnitudes),
                ask.ClipNorm(growths.clip_bound(totals[:step])),
            ),
        )

    def _about_values(self, growth: Growth, magnitudes: Magnitudes, root: Root) -> Finding:
        """Values that a repeated computation multiplies until they leave their range: a recurrence,
        or a deep model, that explodes before there is a gradient."""
        event, place = root.event, root.event.blame.location
        first, last = growth.norms[0], growth.norms[-1]
        dtype = event.output.dtype if event.output is not None else "its dtype"
        way = "time step by time step" if growth.axis == "time" else "layer by layer"
        at = growth.call.location or place
        what = "the weights" if _has_matrices(magnitudes) else "the factor of each repeat"
        is_elsewhere = place is not None and at is not None and place.line != at.line
        between = Fix(
            "stable-op",
            "normalise in between, or use a bounded activation or a gated cell",
            "display-only",
            "h = norm(h)",
        )
        return self.found(
            f"the values grow x{text_of(growth.factor, 3)} per {growth.unit} over"
            f" {plural(len(growth.norms), growth.unit)}, until `{phrases.spelled(event.op)}`"
            f" overflows {dtype}",
            f"The same computation multiplies what it is given, {way}: a norm of"
            f" {text_of(first, 3)} becomes {text_of(last, 3)} before it leaves the range. The"
            f" growth is steady, so it comes from {what} and not from one bad batch,"
            " and backward multiplies by the same. A wider dtype only lasts a few repeats longer.",
            growth.call,
            step=growth.step,
            op=event.op,
            location=at,
            label=f"repeated {len(growth.norms)} times before the overflow",
            related=places(("use", place if is_elsewhere else None, "leaves the range")),
            evidence=growths.facts_of(growth),
            numbers=tuple(phrases.profile(growth, "the values", "the first one first")),
            symptoms=root.symptoms,
            chain=root.chain,
            fixes=(*_at_the_reason(growth, magnitudes), between),
            strength=Strength.PROVEN,
        )

    def _about_first(self, one: Oversized, trace: Trace) -> Finding:
        """Values that are far too large at the first step, and stay finite."""
        gains = one.growing
        most = max(gains, key=lambda gain: gain.factor)
        factor = one.total ** (1 / len(gains))
        unit = "layer" if one.axis == "depth" else "time step"
        layers, taken = plural(len(gains), unit), phrases.spelled(one.taken.op)
        size, usual = text_of(one.given, 3), text_of(one.wanted, 3)
        beside = f"for {one.classes} classes" if one.classes else f"beside targets of size {usual}"
        stays = growths.stays_oversized(one, trace.steps)
        products = dict.fromkeys(
            (gain.call.location, gain.is_left)
            for gain in gains
            if gain.computed and gain.call.location is not None
        )
        gain = 2 if any(has(node, Trait.RECTIFIES) for node in one.nodes) else 1
        computed = ask.ScaleByInputs(tuple(products), most.made, gain)
        reason = "the weights start too large for the number of inputs that they sum over"
        if one.axis == "time":
            reason = "the same weights multiply them again and again"
        elif factor < DOUBLES:
            reason = "each makes them a little larger, as branches do that are added up unscaled"
        grown = f"the values grow x{text_of(factor, 3)} per {unit} over {layers}, to size {size}"
        return self.found(
            f"{grown} {beside} at the first step",
            f"`{taken}` reads numbers that {layers} in a row have made {text_of(one.total, 3)}"
            f" times as large: {reason}. The gradients are as large, so that the first steps do"
            " nothing but undo that, if they can.",
            most.call,
            location=most.made or most.call.location,
            step=one.step,
            severity=Severity.ERROR if stays else Severity.WARNING,
            label="makes the weights" if most.made else f"makes it x{text_of(most.factor, 3)}",
            related=places(
                ("use", most.call.location if most.made else None, "multiplies with them"),
                ("use", one.taken.location, "reads what has grown"),
            ),
            evidence={
                "given": one.given,
                "wanted": one.wanted,
                "factors": [gain.factor for gain in gains],
            },
            numbers=(f"factor by {unit}: {phrases.series([gain.factor for gain in gains])}",),
            symptoms=(Symptom(Trouble.EXPLODING, Subject.LOSS, one.step, "loss"),),
            fixes=(
                *((computed,) if products else ()),
                ask.KeepNorm(one.axis, one.nodes, trace.magnitudes.dimensions),
                _NORMALISED,
            ),
        )


_NORMALISED = Fix(
    "stable-op",
    "normalise in between, or divide by the root of how many are added up: inputs, or branches",
    "display-only",
    "x = x + block(norm(x))",
)


def _has_matrices(magnitudes: Magnitudes) -> bool:
    known = magnitudes.dimensions  # of nothing, where no backward has run
    return not known or any(most > 1 for _, _, most in known)


def _at_the_reason(growth: Growth, magnitudes: Magnitudes) -> Iterator[Fix | ask.Request]:
    """A layer starts from other weights. What has numbers alone, as an integrator, takes steps."""
    if _has_matrices(magnitudes):
        yield ask.KeepNorm(growth.axis, growth.nodes, magnitudes.dimensions)
    else:
        title = "take shorter steps, or an implicit one: this one is too long for what it follows"
        yield Fix("init", title, "unsafe", "dt = dt / 4")


def _words(growth: Growth) -> tuple[str, str, str]:
    """The headline, the label and the mechanism."""
    op, total = phrases.spelled(growth.call.op), number(growth.total, 3)
    if growth.axis == "fused":
        return (
            f"the gradient grows to {total} times its size inside `{op}`, over all its time steps",
            "multiplies by the same weights once per time step",
            "Backward multiplies by the same recurrent weights once per time step, and this op runs"
            " all of them. The forward values are bounded, so only the gradient shows it.",
        )
    where = "the slope of each layer in turn"
    if growth.axis == "time":
        where = "the same weights once per time step"
    doubling = max(1, round(math.log(2) / math.log(growth.factor)))
    more = growth.unit if doubling == 1 else plural(doubling, growth.unit)
    return (
        f"the gradient grows x{growth.factor:.2f} per {growth.unit} over"
        f" {plural(len(growth.norms), growth.unit)}, to {total} times its size at the loss",
        f"crossed {len(growth.norms)} times on the way back",
        f"Backward multiplies by {where}. Most of the growth comes from `{op}`. It is steady, not a"
        " spike, so it comes from the weights and not from one bad batch, and it doubles with every"
        f" {more} more.",
    )


def _overflows(growth: Growth, roots: tuple[Root, ...], limits: Limits) -> bool:
    """Whether the first value that left its range is what repeats of the same lines had grown."""
    if growth.total < limits.gradient_growth or not roots:
        return False
    if math.log(growth.high) > LARGEST_SHARE * math.log(growth.total):
        return False
    event = roots[0].event
    is_birth = event.kind is Kind.BIRTH and event.phase is Phase.FORWARD
    if not is_birth or event.step != growth.step:
        return False
    if _lines(event.blame) & _lines(growth.call):
        return True
    bounds = (bound for one in event.operands for bound in (one.min, one.max) if bound is not None)
    return max(map(abs, bounds), default=0.0) >= SHARE_OF_NORM * growth.norms[-1]


def _lines(call: Call) -> set[str]:
    """The lines that a call stands in, and those that led there from within one function."""
    places = call.frames or ((call.location,) if call.location is not None else ())
    return set(map(str, places[:2]))


def _largest_leaf(magnitudes: Magnitudes, step: int) -> str | None:
    known = (
        (leaf.norms[step] or 0.0, leaf.name) for leaf in magnitudes.leaves if step < len(leaf.norms)
    )
    return max(known, default=(0.0, None))[1]


def _totals(totals: tuple[float, ...], step: int) -> Iterator[str]:
    if step < len(totals):
        before = f", {number(totals[step - 1], 3)} the step before" if step else ""
        yield f"total gradient norm {number(totals[step], 3)} at step {step}{before}"
