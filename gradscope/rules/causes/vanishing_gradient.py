"""Gradients that shrink by a steady factor until weights get almost none."""

from collections.abc import Iterator

from gradscope.facts import (
    Finding,
    Fix,
    Growth,
    Leaf,
    Magnitudes,
    Phase,
    Root,
    Saturated,
    Severity,
    Subject,
    Symptom,
    Trace,
    Trouble,
    number,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.rules.cutoffs import FADED, FEWEST, GONE, SHRINKS
from gradscope.rules.reading import measurements
from gradscope.rules.reading.growths import Faded, facts_of, faded, fades, rms, starved_leaves
from gradscope.rules.reading.saturation import Large, blamed, is_lost
from gradscope.rules.rule import Asked, Rule, places
from gradscope.rules.wording import phrases, proposals

ADAM_EPS = 1e-8  # torch.optim.Adam's default
_NORM = "nn.LayerNorm(features)"
_STANDARDISED = Fix(
    "data", proposals.STANDARDISED, "display-only", "x = (x - x.mean(0)) / x.std(0)"
)


class VanishingGradient(Rule):
    """
    ## What it does
    Finds a gradient that shrinks by a steady factor, layer by layer or in time, until the weights
    farthest from the loss get almost none. Also one that fades over the run, while the loss rises,
    since an op has become flat: the generator's, once the discriminator wins. And one that is lost
    from the first step on, since nearly all results of a `tanh` or a `sigmoid` lie at its bounds:
    its layer reads numbers in the thousands, or has weights that make such numbers.

    ## Why is this bad?
    Backward multiplies by the slope of every layer in turn; a sigmoid's is at most 0.25. After some
    layers the first weights stay as they were initialised. The loss falls a little all the same,
    since the last layers still learn.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    - layers = [m for _ in range(16) for m in (torch.nn.Linear(32, 32), torch.nn.Sigmoid())]
    + layers = [m for _ in range(16) for m in (torch.nn.Linear(32, 32), torch.nn.ReLU())]
    + for layer in layers[::2]:
    +     torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 1))
    model(torch.randn(8, 32)).square().mean().backward()
    ```

    ## Fix safety
    Unsafe: another activation or initialisation is another model; training starts again.

    ## Options
    `thresholds: {gradient-fade: 1e-5, gradient-rms: 1e-8, gradient-share: 1e-6}` in the
    configuration: what is left over the whole way, and of an element of the weight's gradient.
    """

    code = "GS402"
    name = "vanishing-gradient"
    phase = Phase.BACKWARD
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        for usage in () if roots else magnitudes.usages:
            over_run = faded(usage, trace.steps)
            if over_run is not None:
                yield self._about_run(over_run)
        found = [*self._by_layer(magnitudes)]
        yield from found
        if not (found or roots):
            lost = (one for one in trace.saturated if is_lost(one, trace.steps))
            first = min(lost, key=lambda one: one.call.seq or 0, default=None)
            if first is not None:
                yield self._about_bounds(first, magnitudes)

    def _by_layer(self, magnitudes: Magnitudes) -> Iterator[Finding]:
        if not magnitudes.growths:
            return
        first, last = magnitudes.growths[0], magnitudes.growths[-1]
        if not (fades(first, self.limits) and fades(last, self.limits)):
            return
        starved = starved_leaves(magnitudes, last.step, self.limits)
        if starved:
            yield self._about(last, starved, magnitudes)

    def _about(self, growth: Growth, starved: list[Leaf], magnitudes: Magnitudes) -> Finding:
        smallest = min(starved, key=lambda leaf: leaf.norms[growth.step] or 0.0)
        norm = number(smallest.norms[growth.step] or 0.0, 3)
        weights = plural(sum(len(leaf.shape) > 1 for leaf in magnitudes.leaves), "weight")
        get = "gets" if len(starved) == 1 else "get"
        symptom = Symptom(
            Trouble.ZERO, Subject.GRADIENT, growth.step, smallest.name, 0, smallest.numel
        )
        around = Fix(
            "stable-op",
            "add a way around each layer, or normalise in between",
            "display-only",
            "x = x + block(norm(x))",
        )
        return self.found(
            f"the gradient shrinks x{growth.factor:.3g} per {growth.unit} over"
            f" {plural(len(growth.norms), growth.unit)}; {len(starved)} of {weights} {get} almost"
            " none",
            f"Backward multiplies by the slope of each {growth.unit} in turn, and the product"
            f" fades, most of all at `{phrases.spelled(growth.call.op)}`.{_of_activations(growth)}"
            " The weights on the far side stay as they were initialised while the last ones still"
            " learn.",
            growth.call,
            step=growth.step,
            label=f"divides the gradient by about {1 / growth.factor:.1f},"
            f" {len(growth.norms)} times",
            evidence={
                **facts_of(growth),
                "nodes": list(growth.nodes),
                "starved": [leaf.name for leaf in starved],
                "limit": self.limits.gradient_rms,
            },
            numbers=(
                *phrases.profile(growth),
                f"gradient of `{smallest.name}` has norm {norm},"
                f" {number(rms(smallest, growth.step), 2)} an element; Adam's eps is"
                f" {number(ADAM_EPS)}",
            ),
            symptoms=(symptom,),
            fixes=(
                ask.KeepNorm(growth.axis, growth.nodes, magnitudes.dimensions, fades=True),
                around,
            ),
        )

    def _about_run(self, fade: Faded) -> Finding:
        usage, flat, op = fade.usage, fade.flat, phrases.spelled(fade.flat.call.op)
        first, last = map(number, fade.losses)
        return self.found(
            f"the gradient that `{usage.optimizer}` gets fades from {number(fade.usual, 3)} to"
            f" {number(fade.last, 3)} over the run, and the loss rises: `{op}` is flat",
            f"At first `{op}` passed on {number(flat.before, 3)} of the gradient that came to it,"
            f" and at step {flat.step} {number(flat.slope, 3)}: its input has gone where it has no"
            f" slope. The loss has risen from {first} to {last}, so much is left to learn, and"
            f" {phrases.listed(usage.held)} cannot: the worse it gets, the less is passed on.",
            flat.call,
            step=usage.last,
            severity=Severity.ERROR if fade.last <= GONE * fade.usual else Severity.WARNING,
            node=flat.call.node,
            label=f"passes on {number(flat.slope, 3)} of the gradient",
            evidence={
                "axis": "run",
                "optimizer": usage.optimizer,
                **measurements.fields_of(fade, "usual", "last", "since", "losses"),
                "slope": flat.slope,
                "slope_before": flat.before,
            },
            numbers=(
                f"gradient norm by update: {phrases.series([norm for _, norm in usage.norms])}",
                f"below {FADED:g} of what it was from step {fade.since} on",
            ),
            fixes=(ask.Unsaturated(flat),),
        )

    def _about_bounds(self, one: Saturated, magnitudes: Magnitudes) -> Finding:
        op, share, read = (
            phrases.spelled(one.call.op),
            f"{number(100 * one.share, 3)} %",
            number(one.read),
        )
        by, made = blamed(one), one.made
        is_told = by is Large.DATA and made is not None
        place, fixes = one.call.location, tuple[Asked, ...]()
        if by is Large.DATA:
            of = f"The numbers that `{one.weight}` is multiplied with have the size {read}, and its"
            why = f"{of} sums of them lie far beyond where `{op}` ends, whatever the weights are."
            fixes = (_STANDARDISED,)
            if made is not None:
                place, fixes = made.location, (ask.Standardise(made),)
        elif by is Large.WEIGHTS:
            grow = (
                f"`{one.weight}` makes numbers {number(one.gain, 3)} times as large as those that"
            )
            why = f"{grow} it reads, since each is a sum of many: far beyond where `{op}` ends."
            nodes = (one.call.node or "",)
            fixes = (ask.KeepNorm("depth", nodes, magnitudes.dimensions),)
        else:
            of = f"What `{one.weight}` is multiplied with has the size {read} here, as the layers"
            why = f"{of} before have made it: far beyond where `{op}` ends."
            fixes = (Fix("init", "normalise what the layer reads", "display-only", _NORM),)
        return self.found(
            f"{share} of the results of `{op}` lie at its bounds, where it has no slope, in every"
            f" step that was looked at: `{one.weight}` learns next to nothing",
            f"{why} There its slope is 0 by rounding, so no gradient comes to what is before it."
            " The loss falls a little all the same, since the layers behind it still learn.",
            one.call,
            phase=Phase.BACKWARD,
            step=one.steps[FEWEST - 1],
            severity=Severity.WARNING if by is Large.RESULTS else Severity.ERROR,
            location=place,
            label=f"numbers of the size {read}" if is_told else "passes next to no gradient on",
            related=places(("use", one.call.location, "has no slope there")) if is_told else (),
            evidence={
                "axis": "bounds",
                "share": one.share,
                "parameter": one.weight,
                "size": one.read,
                "gain": one.gain,
            },
            numbers=(
                f"at least {share} at the bounds at each of {len(one.steps)} steps from step"
                f" {one.steps[0]} to {one.steps[-1]}",
                f"`{one.weight}` is multiplied with numbers of the size {read}, and makes them"
                f" {number(one.gain, 3)} times as large",
            ),
            fixes=fixes,
        )


def _of_activations(growth: Growth) -> str:
    """Whether the weights or the slopes are small: weights shrink what goes forward too."""
    if not growth.activation_factor:
        return ""
    forward = 1 / growth.activation_factor
    if forward < SHRINKS:
        shrink = f"shrink as well, x{forward:.3g} per {growth.unit}"
        return f" Going forward the activations {shrink}: the weights are too small."
    return " The activations keep their size, so it is the slopes that are small."
