"""NaN that the program computes without a gradient and reads out: no symptom of training tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

import torch

from gradscope.facts import Kind, NanRead, Phase
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.events.origins import LITERAL
from gradscope.record.finite import has_nan, plain
from gradscope.record.journal import Raw
from gradscope.record.oprun import OpRun, StainedInput
from gradscope.record.sites import Site, note_site, positions, resolve
from gradscope.record.tracing import unobserved

_MOST = 8  # places told a run
# Of NaN they are False: the program goes one way for good. `!=` and `==` are how it asks for NaN.
_COMPARES = frozenset({"lt", "le", "gt", "ge"})
# What hands elements on as they are: a NaN that is only moved was computed by nobody.
_MOVES = Trait.COPIES | Trait.CHOOSES | Trait.JOINS | Trait.FILLS


@dataclass(slots=True)
class _Reads:
    """The reads at one place in one step. `root` is where the first NaN among them came from."""

    user: Site
    step: int
    finite_before: bool = False  # a read of an earlier step
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
        self._reads: dict[object, _Reads] = {}  # by place

    def note(self, tensor: torch.Tensor, value: float | None, frame: FrameType) -> None:
        """A number was read out of a tensor by the forward pass, or between the passes, or the
        truth of a comparison, or (None) all that it holds."""
        context = self._context
        if value is None:
            value = self._all_of(tensor)
        elif tensor.dtype is torch.bool:
            self._settle()
            value = math.nan if context.provenance.of(tensor) is not None else value
        user, _ = note_site(frame, context.module)
        if context.in_optimizer or not user:
            return
        # Python runs one call as one instruction or as two, as it warms up: they are one place.
        place = tuple((id(code), positions(code)[lasti // 2]) for code, lasti in user)
        reads = self._reads.get(place)
        if reads is None or reads.step != context.step:
            before = reads is not None and (reads.finite_before or reads.nan < reads.count)
            reads = self._reads[place] = _Reads(user, context.step, before)
        reads.count += 1
        if value != value:
            reads.nan += 1
            self._settle()
            reads.root = reads.root or self._root(tensor)

    def note_compared(self, op: OpRun, stained: Sequence[StainedInput]) -> None:
        """An op on bad values gave no number: what a comparison says comes of them."""
        out = op.out
        if op.info.name not in _COMPARES or not isinstance(out, torch.Tensor) or out.numel() != 1:
            return
        for one in stained:
            if has_nan(one.tensor):
                self._context.provenance.mark(out, one.stain.event, innocent=True)

    def _all_of(self, tensor: torch.Tensor) -> float:
        """NaN where nothing else is in there."""
        self._settle()
        values = plain(tensor) if self._context.provenance.of(tensor) is not None else None
        with unobserved():
            return math.nan if values is not None and bool(values.isnan().all()) else 0.0

    def _root(self, tensor: torch.Tensor) -> Raw | None:
        """Where the NaN of a metric began; None of what is no metric: it is in the graph, or comes
        out of backward, or is a placeholder that the program has put there."""
        stain = self._context.provenance.of(tensor)
        way = list(self._context.journal.ancestors(stain.event)) if stain is not None else []
        if any(one.in_graph or one.fact.phase not in (Phase.FORWARD, Phase.DATA) for one in way):
            return None
        if not any(map(_computes, way)):
            return None
        return next((one for one in reversed(way) if _begins(one)), None)

    def held(self) -> list[int]:
        """The events that are told of in the end."""
        return [reads.root.fact.id for reads in self._reads.values() if reads.root is not None]

    def facts(self) -> tuple[NanRead, ...]:
        """One for each place where a NaN began, first read first."""
        found: dict[object, NanRead] = {}
        for reads in self._reads.values():
            if reads.root is not None and reads.nan == reads.count:
                event = self._context.journal.freeze(reads.root)
                place = resolve(*reads.user[0])
                read = NanRead(event, reads.step, reads.nan, place, reads.finite_before)
                found.setdefault((event.op, event.blame.location), read)
        return tuple(found.values())[:_MOST]


def _computes(raw: Raw) -> bool:
    moves = has(raw.note.info.name, _MOVES)
    return raw.fact.kind is Kind.BIRTH or (raw.fact.kind is Kind.PROPAGATION and not moves)


def _begins(raw: Raw) -> bool:
    if raw.fact.kind is Kind.SOURCE:
        return raw.note.info.name != LITERAL
    return raw.fact.kind is Kind.BIRTH
