"""NaN that the program computes without a gradient and reads out: no symptom of training tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import torch

from gradscope.facts import Kind, NanRead, Phase
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.events.origins import LITERAL
from gradscope.record.journal import Raw
from gradscope.record.sites import Site, note_site, resolve

_MOST = 8  # places told a run
# What hands elements on as they are: a NaN that is only moved was computed by nobody.
_MOVES = Trait.COPIES | Trait.CHOOSES | Trait.JOINS | Trait.FILLS


@dataclass(slots=True)
class _Reads:
    """The reads at one place in one step. `root` is where the first NaN among them came from."""

    step: int
    count: int = 0
    nan: int = 0
    root: Raw | None = None


class NanReads:
    """Counts what is read at each place in the last step that read there. Where some of it is
    finite, the program knows of missing values: a class without a sample has no score."""

    def __init__(self, context: RunContext, settle: Callable[[], None]) -> None:
        """`settle` has the ops judged that wait for it: those on a device."""
        self._context = context
        self._settle = settle
        self._reads: dict[Site, _Reads] = {}

    def note(self, tensor: torch.Tensor, value: float, frame: FrameType) -> None:
        """A number was read out of a tensor by the forward pass, or between the passes."""
        context = self._context
        user, _ = note_site(frame, context.module)
        if context.in_optimizer or not user:
            return
        reads = self._reads.get(user)
        if reads is None or reads.step != context.step:
            reads = self._reads[user] = _Reads(context.step)
        reads.count += 1
        if value != value:
            reads.nan += 1
            self._settle()
            reads.root = reads.root or self._root(tensor)

    def _root(self, tensor: torch.Tensor) -> Raw | None:
        """Where the NaN of a metric began; None of what is no metric: it is in the graph, or comes
        out of backward, or is a placeholder that the program has put there."""
        stain = self._context.provenance.of(tensor)
        way = list(self._context.journal.ancestors(stain.event)) if stain is not None else []
        if any(one.in_graph or one.phase not in (Phase.FORWARD, Phase.DATA) for one in way):
            return None
        if not any(map(_computes, way)):
            return None
        return next((one for one in reversed(way) if _begins(one)), None)

    def held(self) -> list[int]:
        """The events that are told of in the end."""
        return [reads.root.id for reads in self._reads.values() if reads.root is not None]

    def facts(self) -> tuple[NanRead, ...]:
        """One for each place where a NaN began, first read first."""
        found: dict[object, NanRead] = {}
        for user, reads in self._reads.items():
            if reads.root is not None and reads.nan == reads.count:
                event = self._context.journal.freeze(reads.root)
                read = NanRead(event, reads.step, reads.nan, resolve(*user[0]))
                found.setdefault((event.op, event.blame.location), read)
        return tuple(found.values())[:_MOST]


def _computes(raw: Raw) -> bool:
    moves = has(raw.note.info.name, _MOVES)
    return raw.kind is Kind.BIRTH or (raw.kind is Kind.PROPAGATION and not moves)


def _begins(raw: Raw) -> bool:
    if raw.kind is Kind.SOURCE:
        return raw.note.info.name != LITERAL
    return raw.kind is Kind.BIRTH
