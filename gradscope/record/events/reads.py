"""NaN that the program computes without a gradient and reads out, or keeps: no symptom of training
tells."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import torch

from gradscope.facts import Kind, NanRead, Phase, UnseenRead
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.events.origins import LITERAL
from gradscope.record.finite import has_nan, holds_bad, plain
from gradscope.record.held import parts_of, reached_from, scopes_of, variables
from gradscope.record.journal import Raw
from gradscope.record.oprun import OpRun, StainedInput
from gradscope.record.sites import Site, note_site, positions, resolve
from gradscope.record.tracing import unobserved

_MOST = 8  # places told a run
_FEW = 64  # elements of a result, and not of data
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
    before: frozenset[str] | None = None  # Python numbers that were NaN before the first one was
    since: int = 0  # finite ones since the last NaN
    sum: str = ""  # a Python number that has been NaN since


@dataclass(slots=True)
class _Kept:
    """A tensor of NaN that nobody has looked at, and the expression that holds it."""

    root: Raw
    name: str


class BadReads:
    """Counts what is read at each place in the last step that read there. Where some of it is
    finite, the program knows of missing values: a class without a sample has no score."""

    def __init__(self, context: RunContext, settle: Callable[[], None]) -> None:
        """`settle` has the ops judged that wait for it: those on a device."""
        self._context = context
        self._settle = settle
        self._reads: dict[object, _Reads] = {}  # by place
        self._kept: dict[object, _Kept] = {}  # by the place of birth
        self._handled: set[int] = set()  # events whose NaN the program asked about
        # The events whose values became Python numbers that are NaN, and those that are inf: of
        # two nobody knows which it was that comes back, so that no more are held.
        self._numbers: dict[bool, set[int]] = {True: set(), False: set()}
        self.watched: UnseenRead | None = None  # the first one in a step whose ops nobody saw

    def __bool__(self) -> bool:
        """Whether a NaN was read so far."""
        return any(reads.before is not None for reads in self._reads.values())

    def note(self, tensor: torch.Tensor, value: float | None, frame: FrameType) -> None:
        """A number was read out of a tensor by the forward pass, or between the passes, or the
        truth of a comparison, or (None) all that it holds."""
        context = self._context
        if value is None or not math.isfinite(value):
            self._note_numbers(tensor)
        if value is None:
            value = self._all_of(tensor)
        elif tensor.dtype is torch.bool:
            self._settle()
            value = math.nan if context.provenance.of(tensor) is not None else value
        user, _ = note_site(frame, context.module)
        if context.in_optimizer or not user:
            return
        place = _key(user)
        reads = self._reads.get(place)
        if reads is None or reads.step != context.step:
            old, reads = reads, _Reads(user, context.step)
            self._reads[place] = reads
            if old is not None:
                reads.finite_before = old.finite_before or old.nan < old.count
                reads.before, reads.root, reads.sum = old.before, old.root, old.sum
        reads.count += 1
        if value != value:
            reads.nan += 1
            self._settle()
            reads.root = reads.root or self._root(tensor)
            if reads.before is None:
                reads.before = frozenset(_nan_numbers(scopes_of(frame)))
            reads.since = 0
        else:
            # When the first one is read, a variable of the loop still holds the NaN before it.
            if reads.since == 1:
                self._look_at_sums(reads, scopes_of(frame))
            reads.since += 1

    def _note_numbers(self, tensor: torch.Tensor) -> None:
        self._settle()
        stain = self._context.provenance.of(tensor)
        if stain is not None and not stain.intended and holds_bad(tensor):
            known = self._numbers[has_nan(tensor)]
            if len(known) < 2:
                known.add(stain.event)

    def behind(self, number: float) -> int | None:
        """The event whose value the program has read as a Python number, where a number that is as
        bad comes into an op: the only one that it can have been."""
        known = self._numbers[math.isnan(number)] if not math.isfinite(number) else ()
        return next(iter(known)) if len(known) == 1 else None

    def note_watched(self, frame: FrameType) -> None:
        """A NaN was read in a step whose ops nobody saw. Of a place that read one in a step in full
        it is known what that means."""
        user, _ = note_site(frame)
        if self.watched is not None or self._context.in_optimizer or not user:
            return
        known = self._reads.get(_key(user))
        if known is None or known.before is None:
            self.watched = UnseenRead(self._context.step, resolve(*user[0]))

    def note_unseen(self, scopes: Iterable[Mapping[str, Any]]) -> None:
        """The program is over, and nobody saw its last ops: what it holds may be NaN since then."""
        for scope in scopes if self.watched is None else ():
            for name, value, _ in _tensors_in(scope):
                is_number = value.is_floating_point() and 0 < value.numel() <= _FEW
                values = plain(value) if is_number and not value.requires_grad else None
                if values is None or not values.numel():
                    continue
                # What was seen to be made is judged by how it was.
                if self._context.provenance.of(value) is None and bool(values.isnan().all()):
                    self.watched = UnseenRead(self._context.step, None, name)
                    return

    def _look_at_sums(self, reads: _Reads, scopes: Iterable[Mapping[str, Any]]) -> None:
        """A Python number that has become NaN, and is no copy of what was read last."""
        if reads.before is not None and not reads.sum:
            became = (name for name in _nan_numbers(scopes) if name not in reads.before)
            reads.sum = next(became, "")

    def look_at_kept(self, scopes: Iterable[Mapping[str, Any]]) -> None:
        """What the program still holds, of what is computed without a gradient: the variables of
        its frames when a backward begins, or those of the module when it is over."""
        context, scopes = self._context, list(scopes)
        for reads in self._reads.values():
            if reads.since:
                self._look_at_sums(reads, scopes)
        events = context.journal.events
        if all(
            stain.event in events and events[stain.event].in_graph for stain in context.provenance
        ):
            return
        self._settle()
        for raw in events.values():
            if raw.fact.kind is Kind.KILL:
                self._handled.update(raw.fact.sources)
        roots: dict[int, Raw | None] = {}  # of what the program holds
        for scope in scopes:
            holders: dict[int, tuple[Any, dict[str, Raw]]] = {}
            for name, value, holder in _tensors_in(scope):
                stain = context.provenance.of(value)
                if stain is None or stain.uninitialized or value.requires_grad:
                    continue
                if stain.event not in roots:
                    roots[stain.event] = self._kept_root(stain.event)
                root = roots[stain.event]
                if root is not None and math.isnan(self._all_of(value)):
                    holders.setdefault(id(holder), (holder, {}))[1][name] = root
            for holder, found in holders.values():
                if _is_no_gap(holder, found):
                    for name, root in found.items():
                        kept = _Kept(root, name)
                        self._kept.setdefault((root.note.info.name, root.note.user), kept)

    def _kept_root(self, event: int) -> Raw | None:
        """Where the NaN of an event was born, if the program has not asked about it."""
        way = list(self._context.journal.ancestors(event))
        if any(one.fact.id in self._handled for one in way):
            return None
        root = self._root_of(way)
        return root if root is not None and root.fact.kind is Kind.BIRTH else None

    def note_compared(self, op: OpRun, stained: Sequence[StainedInput]) -> None:
        """An op on bad values gave no number: what a comparison says comes of them."""
        out = op.out
        if not isinstance(out, torch.Tensor) or out.dtype is not torch.bool:
            return
        if op.info.name not in _COMPARES:
            self._handled.update(one.stain.event for one in stained)
            return
        if out.numel() != 1:
            return
        for one in stained:
            if has_nan(one.tensor):
                self._context.provenance.mark(out, one.stain.event, intended=True)

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
        return self._root_of(
            list(self._context.journal.ancestors(stain.event)) if stain is not None else []
        )

    def _root_of(self, way: list[Raw]) -> Raw | None:
        if any(one.in_graph or one.fact.phase not in (Phase.FORWARD, Phase.DATA) for one in way):
            return None
        if not any(map(_computes, way)):
            return None
        return next((one for one in reversed(way) if _begins(one)), None)

    def held(self) -> list[int]:
        """The events that are told of in the end."""
        roots = [one.root for by in (self._reads, self._kept) for one in by.values()]
        read = set().union(*self._numbers.values())
        return [*read, *(root.fact.id for root in roots if root is not None)]

    def facts(self) -> tuple[NanRead, ...]:
        """One for each place where a NaN began, first read first, those that nobody read last."""
        found: dict[object, NanRead] = {}
        for reads in self._reads.values():
            if reads.root is not None and (reads.sum or reads.nan == reads.count):
                event = self._context.journal.freeze(reads.root)
                place, name = resolve(*reads.user[0]), reads.sum if reads.nan < reads.count else ""
                read = NanRead(event, reads.nan, place, reads.finite_before, name)
                found.setdefault((event.op, event.blame.location), read)
        for kept in self._kept.values():
            event, place = self._context.journal.freeze(kept.root), resolve(*kept.root.note.user[0])
            read = NanRead(event, 0, place, held_as=kept.name)
            found.setdefault((event.op, event.blame.location), read)
        return tuple(found.values())[:_MOST]


def _tensors_in(scope: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """What variables lead to, the buffers of modules included, as `reached_from` tells it."""
    for name, value, holder in reached_from(scope):
        if type(value) is torch.Tensor:
            yield name, value, holder
        elif issubclass(type(value), torch.nn.Module):
            for part, buffer in value.named_buffers(prefix=name):
                if type(buffer) is torch.Tensor:
                    yield part, buffer, value


def _key(user: Site) -> object:
    """Python runs one call as one instruction or as two, as it warms up: they are one place."""
    return tuple((id(code), positions(code)[lasti // 2]) for code, lasti in user)


def _nan_numbers(scopes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The variables, and the attributes of objects, whose value is a Python number that is NaN. The
    entries of lists and dicts are results of their own, of which some may not be defined."""
    for scope in scopes:
        for name, value in variables(scope):
            is_object = not isinstance(value, list | tuple | dict | FunctionType)
            for one, number in ((name, value), *(parts_of(name, value) if is_object else ())):
                if type(number) is float and number != number:
                    yield one


def _is_no_gap(holder: Any, found: Mapping[str, Raw]) -> bool:
    """Whether the NaN that a container holds are more than the results that are not defined, of
    several: it holds no others, or they are of several steps."""
    if not isinstance(holder, list | tuple | deque | dict):
        return True
    tensors = [one for _, one in parts_of("", holder) if isinstance(one, torch.Tensor)]
    return len(found) == len(tensors) or len({root.fact.step for root in found.values()}) > 1


def _computes(raw: Raw) -> bool:
    moves = has(raw.note.info.name, _MOVES)
    return raw.fact.kind is Kind.BIRTH or (raw.fact.kind is Kind.PROPAGATION and not moves)


def _begins(raw: Raw) -> bool:
    if raw.fact.kind is Kind.SOURCE:
        return raw.note.info.name != LITERAL
    return raw.fact.kind is Kind.BIRTH
