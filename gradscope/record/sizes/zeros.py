"""Values without a graph that are 0 in all elements, and the products that they are factors of: no
gradient passes these."""

from collections.abc import Sequence
from typing import Any

from gradscope.ops.traits import Trait, has
from gradscope.record.events.provenance import storage_key
from gradscope.record.oprun import flatten
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site, note_site
from gradscope.record.sizes.leaves import has_memory

_MOST = 4096  # memories
_FILLED = frozenset("zeros zeros_like new_zeros full full_like new_full".split())


class Zeros:
    """Told of the ops of one forward pass, each with a frame inside of which it was called."""

    def __init__(self) -> None:
        self.factors: dict[
            int | None, Site
        ] = {}  # where a factor became 0, by the number of the product
        self._known: dict[int | None, Site] = {}  # likewise, by memory; of what began as 0 nowhere

    def note(self, info: OpInfo, args: Sequence[Any], out: Any, made: int, frame: Any) -> None:
        before = [self._known.get(storage_key(one), None) for one in flatten(args)]
        sites = [site for site in before if site]
        if made:
            if sites and has(info.name, Trait.MULTIPLIES):
                self.factors[made - 1] = sites[0]
            return
        for result in () if info.view else filter(has_memory, flatten(out)):
            key = storage_key(result)
            self._known.pop(key, None)
            if len(self._known) < _MOST and result.numel() and not result.any():
                begins = info.fills or info.name in _FILLED or not before
                self._known[key] = sites[0] if sites else () if begins else note_site(frame)[0]
