"""The sizes of activations and of their gradients, layer by layer."""

from __future__ import annotations

from gradscope.facts import Activation, Depth, LayerSize
from gradscope.record.journal import Note
from gradscope.record.modules import module_path
from gradscope.record.sites import resolve
from gradscope.record.sizes.crossings import Crossings
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.layers import Layers


def depth_of(
    step: int, activations: dict[int, Activation], crossings: Crossings, flow: Flow, layers: Layers
) -> Depth:
    """Each layer with its last result, in the order in which the forward pass first came to it."""
    gradients = {one.seq: one.out for one in crossings.found if one.out is not None}
    found: dict[str, LayerSize] = {}
    for seq in sorted(activations):
        noted = flow.calls.get(seq)
        layer = _layer(noted, layers) if noted is not None else None
        if noted is not None and layer is not None:
            size = activations[seq]
            inside = noted.module is not None
            found[layer] = LayerSize(layer, noted.info.name, size, gradients.get(seq), inside)
    return Depth(step, tuple(found.values()))


def _layer(noted: Note, layers: Layers) -> str | None:
    """The module that ran the op under the name by which its parameters go; the line, for an op
    outside of all modules."""
    if noted.module is not None:
        return layers.modules.get(id(noted.module.module)) or module_path(noted.module)
    if not noted.user:
        return None
    place = resolve(*noted.user[0])
    return f"{place.file}:{place.line}"
