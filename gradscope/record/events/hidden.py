"""Inf and NaN that a mask hid from a loss without having hurt yet: what hazards are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from gradscope.facts import Event, Kind, Phase
from gradscope.record.context import RunContext
from gradscope.record.journal import Raw, to_call
from gradscope.record.passes import BackwardPass

_MOST = 8  # places remembered a run: more are no longer read


class Hidden:
    """Keeps the births of each step that something hid on the way to the loss.

    Looks at the graph only in steps with such a birth, of which healthy runs have none.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._births: dict[object, tuple[Raw, Raw]] = {}  # a birth and what hid it, by place

    def after_backward(self, one: BackwardPass) -> None:
        found = list(self._candidates()) if self._context.journal.events else None
        if not found or len(self._births) >= _MOST:
            return
        on_the_way = {node._sequence_nr() for node in one.above}
        for birth, kill in found:
            if birth.seq in on_the_way and kill.seq in on_the_way:
                self._births.setdefault((birth.note.info.name, birth.note.user), (birth, kill))

    def _candidates(self) -> Iterator[tuple[Raw, Raw]]:
        """Births in differentiable ops, and the differentiable op that hid each."""
        journal, step = self._context.journal, self._context.step
        for kill in list(journal.events.values()):
            if kill.fact.kind is not Kind.KILL or kill.fact.step != step or kill.seq is None:
                continue
            for raw in journal.ancestors(kill.fact.id):
                if raw.fact.kind is Kind.BIRTH and raw.fact.phase is Phase.FORWARD and raw.in_graph:
                    yield raw, kill

    def events(self, explained: Collection[int]) -> tuple[Event, ...]:
        """The births that lead to no symptom, first come first."""
        journal = self._context.journal
        kept = [pair for pair in self._births.values() if pair[0].fact.id not in explained]
        return tuple(
            replace(journal.freeze(birth), hidden_by=to_call(kill.note, kill.seq))
            for birth, kill in kept[:_MOST]
        )
