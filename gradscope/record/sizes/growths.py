"""The growths that were seen at the inspected steps, as facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradscope.facts import Activation, Growth
from gradscope.ops.names import node_stem
from gradscope.record.sizes.crossings import Crossings
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.growth import fit, fit_values, fitted_factor, fused_gain
from gradscope.record.sizes.reasons import call_of


class Growths:
    """One a step at most: the change of norm along the computation that repeats."""

    def __init__(self) -> None:
        self._seen: list[Growth] = []
        self.swelling: Growth | None = None

    def note(
        self,
        step: int,
        crossings: Crossings,
        flow: Flow | None,
        activations: Mapping[int, Activation],
    ) -> None:
        """`activations` are the results of the calls, by sequence number."""
        if self.swelling is None:
            self._note_swelling(step, crossings, flow, activations)
        found = fit(crossings.found)
        if found is None:
            self._note_fused(step, crossings, flow)
            return
        sizes = _sizes(crossings, found.anchors, activations)
        self._seen.append(
            Growth(
                step=step,
                axis=found.axis,
                call=call_of(crossings.found[found.culprit], flow),
                norms=found.norms,
                factor=found.factor,
                low=found.low,
                high=found.high,
                modules=found.modules,
                activations=sizes,
                activation_factor=fitted_factor(sizes),
                nodes=found.nodes,
            )
        )

    def _note_fused(self, step: int, crossings: Crossings, flow: Flow | None) -> None:
        """A recurrent layer that runs all its time steps as one op."""
        layers = [one for one in crossings.found if one.out and "Rnn" in node_stem(one.name)]
        if not layers:
            return
        layer = max(layers, key=fused_gain)
        gain = fused_gain(layer)
        norms = (layer.out or 0.0, gain * (layer.out or 0.0))
        self._seen.append(Growth(step, "fused", call_of(layer, flow), norms, gain, gain, gain))

    def _note_swelling(
        self,
        step: int,
        crossings: Crossings,
        flow: Flow | None,
        activations: Mapping[int, Activation],
    ) -> None:
        """Results that grow until they are not finite: there may be no gradient to measure."""
        sizes = {seq: activation.norm for seq, activation in activations.items()}
        found = fit_values(crossings.found, sizes)
        if found is not None:
            call = call_of(crossings.found[found.culprit], flow)
            self.swelling = Growth(
                step, found.axis, call, found.norms, found.factor, found.low, found.high
            )

    def strongest(self) -> tuple[Growth, ...]:
        """The first, the last and the most extreme ones, in the order of the steps."""
        if len(self._seen) <= 4:
            return tuple(self._seen)
        by_total = sorted(self._seen, key=lambda growth: growth.total)
        kept = (self._seen[0], self._seen[-1], by_total[0], by_total[-1])
        unique = {id(growth): growth for growth in kept}
        return tuple(sorted(unique.values(), key=lambda growth: growth.step))


def _sizes(
    crossings: Crossings, anchors: Sequence[int], activations: Mapping[int, Activation]
) -> tuple[float, ...]:
    """The norms of the results at the anchors; nothing where one of them is not known."""
    seqs = [crossings.found[position].seq for position in anchors]
    if not all(seq in activations for seq in seqs):
        return ()
    return tuple(activations[seq].norm for seq in seqs)
