"""Bad values that no observed op made: they came in with data, a parameter, a literal."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from gradscope.facts import Event, Kind, Phase
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.events import measure
from gradscope.record.events.received import Arrival
from gradscope.record.finite import has_nan, holds_bad
from gradscope.record.journal import UNRESOLVED, Raw
from gradscope.record.oprun import OpRun, StainedInput, among

LITERAL = "lift_fresh"  # `torch.tensor([...])` arrives as this, and so does an array of numpy's


class Origins:
    """Finds or makes the event that stands for where bad values entered the program."""

    def __init__(self, context: RunContext, behind: Callable[[float], int | None]) -> None:
        """`behind` tells the event whose value has become a Python number that is as bad."""
        self.context = context
        self._behind = behind

    def of_unknown(self, op: OpRun, reader: Raw, written: list[torch.Tensor]) -> list[int]:
        """Events for the bad inputs that no observed op made."""
        found: list[int] = []
        for name, tensor in op.inputs():
            known = self.context.provenance.of(tensor) is not None
            made = among(tensor, written) and self.context.received.opened is None
            if known or made or not holds_bad(tensor):
                continue
            arrival = self.context.received.by(op, tensor, written)
            if arrival is not None and arrival.sources:
                found += arrival.sources  # bad before it was sent
            else:
                found.append(self._came_in(name, tensor, reader, arrival))
        return found

    def of_numbers(self, op: OpRun) -> list[int]:
        """The event behind a number that the op was given, or that is in the list of a literal. An
        inf that fills memory is meant as it stands."""
        numbers = op.numbers()
        if op.info.name == LITERAL and isinstance(op.out, torch.Tensor) and has_nan(op.out):
            numbers = [math.nan]
        bad = (one for one in numbers if math.isnan(one) or not op.info.fills)
        found = dict.fromkeys(map(self._behind, bad))
        return [one for one in found if one is not None]

    def _came_in(
        self, name: str, tensor: torch.Tensor, reader: Raw, arrival: Arrival | None
    ) -> int:
        context = self.context
        raw = _source(reader)
        if arrival is not None:
            raw.fact = replace(raw.fact, kind=Kind.RECEIVED)
            raw.note, raw.seq = arrival.note, None
        if context.journal.add(raw) is None:
            return -1
        # A buffer that holds inf and no NaN is a mask.
        raw.intended = context.names.held_as(tensor) == "buffer" and not has_nan(tensor)
        context.provenance.mark(tensor, raw.fact.id, intended=raw.intended)
        measure.describe_source(raw, name, tensor, context)
        return raw.fact.id

    def through_parameters(
        self, reader: Raw, sources: list[int], stained: list[StainedInput]
    ) -> list[int]:
        """Where a library call (load_state_dict) filled a parameter or buffer with bad values, or a
        parameter holds an inf, the op that first used it is where the user's trouble begins."""
        context = self.context
        if reader.note.info.written:
            return sources
        for name, tensor, stain in stained:
            if stain.event not in sources or not self._begins_here(tensor, stain.event):
                continue
            origin = _source(reader, stain.event)
            if context.journal.add(origin) is None:
                continue
            measure.describe_source(origin, name, tensor, context)
            sources[sources.index(stain.event)] = origin.fact.id
            context.provenance.mark(tensor, origin.fact.id, intended=False)
        return sources

    def _begins_here(self, tensor: torch.Tensor, event: int) -> bool:
        """Whether the first op that reads a parameter or buffer is to be named for what is in it.
        No parameter is meant to be inf, unlike a mask in a buffer."""
        filled = self.context.journal.events.get(event)
        held_as = self.context.names.held_as(tensor)
        if filled is None or held_as not in ("parameter", "buffer"):
            return False
        if filled.fact.phase is Phase.DATA and not filled.note.info.written:
            return False  # its first use is known
        if filled.intended:
            return held_as == "parameter"
        by_library = (
            filled.fact.kind is Kind.SOURCE and filled.note.info.written and filled.note.inner
        )
        return bool(by_library) or self._is_from_outside([event])

    def accuse_data(self, op: OpRun, reader: Raw) -> None:
        """An inf in an array may be meant as long as it is compared, added or masked. One that is
        multiplied with weights is bad data."""
        held_as = self.context.names.held_as
        multiplies = has(op.info.name, Trait.MULTIPLIES)
        if not multiplies or not any(held_as(x) == "parameter" for _, x in op.inputs()):
            return
        past = list(self.context.journal.ancestors(*reader.fact.sources))
        literals = [raw for raw in past if raw.note.info.name == LITERAL and raw.fact.numel > 1]
        arrays = [raw for raw in literals if raw.fact.kind is Kind.CONSTANT]
        if arrays and all(raw.fact.kind in (Kind.CONSTANT, Kind.PROPAGATION) for raw in past):
            for raw in past:
                raw.intended = False
            for raw in arrays:
                raw.fact = replace(raw.fact, kind=Kind.SOURCE, phase=Phase.DATA)

    def filled_parameter(self, raw: Raw, written: list[torch.Tensor]) -> torch.Tensor | None:
        """The parameter or buffer into which an op put values that were bad before any training:
        a NaN literal, a checkpoint."""
        if not written or raw.fact.phase is not Phase.FORWARD or not raw.fact.sources:
            return None
        held = self.context.names.holder(written[0])
        origins = [self.context.journal.events.get(id) for id in raw.fact.sources]
        intended = all(origin is not None and origin.intended for origin in origins)
        if held is None or intended or not self._is_from_outside(raw.fact.sources):
            return None
        return held

    def _is_from_outside(self, ids: Iterable[int]) -> bool:
        """Whether values came in as literals or data, and no arithmetic made them."""
        past = self.context.journal.ancestors(*ids)
        return all(
            raw.fact.kind in (Kind.SOURCE, Kind.CONSTANT)
            or (
                raw.fact.kind is Kind.PROPAGATION
                and raw.fact.phase in (Phase.FORWARD, Phase.DATA)
                and has(raw.note.info.name, Trait.COPIES | Trait.FILLS)
            )
            for raw in past
        )


def _source(reader: Raw, *sources: int) -> Raw:
    """An event at the op that read the values."""
    step = reader.fact.step
    fact = Event(-1, step, Kind.SOURCE, Phase.DATA, UNRESOLVED, UNRESOLVED, sources=sources)
    return Raw(fact, reader.note, reader.seq)
