"""The closer look at an op that took or gave bad values: what kind of event it is.

Runs only near non-finite values, so it may count, compare and copy; the healthy path is in
`mode.py`.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from gradscope.facts import Event, Kind, NotChecked, Phase
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.events import measure
from gradscope.record.events.origins import LITERAL, Origins
from gradscope.record.events.provenance import covers_storage, storage_key
from gradscope.record.events.reads import BadReads
from gradscope.record.finite import ends_of, has_nan, holds_bad, pieces, plain, some_nan
from gradscope.record.graph import node_name
from gradscope.record.journal import UNRESOLVED, Note, Raw
from gradscope.record.oprun import NodeOps, OpRun, StainedInput, among, flatten

_DETAILED = 200  # events measured in full a step: the first ones are those that people ask about
_FILL_LIMIT = 1_000_000  # elements of uninitialised memory that are worth filling
_NOT_FILLED = NotChecked(
    "whether memory is read that nothing was written to",
    f"an allocation is larger than {_FILL_LIMIT:,} elements",
)
_FROM_OUTSIDE = ("set", "from_file", "_pin_memory")  # `torch.load` lays tensors over read memory


class Examiner:
    """Turns one op near bad values into events and stains."""

    def __init__(
        self,
        context: RunContext,
        on_bad_result: Callable[[Raw, Sequence[torch.Tensor]], None],
        reads: BadReads,
    ) -> None:
        self.context = context
        self.on_bad_result = on_bad_result  # told the event, and the tensors that the op wrote
        self.on_truths = reads.note_compared  # told of an op on bad values that gives no number
        self.origins = Origins(context, reads.behind)
        self._detailed = Counter[int]()  # by step: those of a step may do no harm, time and again
        self.not_checked: dict[NotChecked, None] = {}  # in order

    def examine(self, op: OpRun) -> None:
        self.context.shielded(op.info.name, self._examine, op)

    def _examine(self, op: OpRun) -> None:
        if op.info.allocates:
            self._mark_uninitialized(op)
            return
        written = op.written()
        outputs = written or flatten(op.out)
        if op.info.fills_part and not _reads_bad(op, outputs):
            return
        stained = self._stained(op, written)
        bad = [tensor for tensor in outputs if holds_bad(tensor)]
        if bad:
            self._bad_result(op, written, stained, bad)
        else:
            self._finite_result(op, written, outputs, stained)

    def _stained(self, op: OpRun, written: list[torch.Tensor]) -> list[StainedInput]:
        """The inputs whose bad values have a known origin. A tensor that the op has just written
        is judged by what was known before: its old values are gone."""
        found = []
        for name, tensor in op.inputs():
            stain = self.context.provenance.of(tensor)
            if stain is not None and (among(tensor, written) or holds_bad(tensor)):
                found.append(StainedInput(name, tensor, stain))
        return _picked(op, found)

    def _finite_result(
        self,
        op: OpRun,
        written: list[torch.Tensor],
        outputs: list[torch.Tensor],
        stained: list[StainedInput],
    ) -> None:
        for tensor in written:
            if self.context.provenance.of(tensor) is not None and covers_storage(tensor):
                self.context.provenance.clear(tensor)
        anew = has(op.info.name, Trait.REPLACES)
        hidden = [one.stain for one in stained if not (anew and among(one.tensor, written))]
        if hidden and any(plain(tensor) is not None for tensor in outputs):
            sources = dict.fromkeys(stain.event for stain in hidden)
            self.context.journal.add(self._raw(Kind.KILL, op, tuple(sources)))
        elif hidden:
            self.on_truths(op, stained)

    def _bad_result(
        self,
        op: OpRun,
        written: list[torch.Tensor],
        stained: list[StainedInput],
        bad: list[torch.Tensor],
    ) -> None:
        context = self.context
        output = bad[0]
        values = plain(output)
        assert values is not None
        raw = self._raw(Kind.PROPAGATION, op)
        raw.in_graph = output.requires_grad or op.seq is not None
        raw.fact = replace(raw.fact, sources=self._sources(op, raw, written, stained))
        self._name_allocated(op, stained)
        self.origins.accuse_data(op, raw)
        raw.fact = replace(raw.fact, kind=self._kind(op, raw, stained, output, values))
        if raw.fact.kind is Kind.CONSTANT:
            raw.blame = self._caller(raw)
        elif raw.fact.kind is Kind.PROPAGATION:
            raw.factor = op.factor
        filled = self.origins.filled_parameter(raw, written)
        if filled is not None:
            raw.fact, output = replace(raw.fact, kind=Kind.SOURCE, phase=Phase.DATA), filled
        raw.intended = self._is_intended(raw, values)
        raw.cancels = _cancels(op, raw, written, values)
        if context.journal.add(raw) is None:
            # There is no room for another event: what comes of these values goes back to the last.
            for tensor, source in itertools.product(bad, raw.fact.sources[:1]):
                context.provenance.mark(tensor, source, intended=raw.intended)
            context.bad_in_step |= not raw.intended
            return
        statistics = op.info.updated_tensors(op.args, op.kwargs)
        for tensor in (*bad, *filter(holds_bad, statistics)):
            context.provenance.mark(tensor, raw.fact.id, intended=raw.intended)
        self._measure(op, raw, written, output, values)
        if raw.node is not None:
            op.running.events.append(raw)
        # No inf that an optimizer writes is meant.
        context.bad_in_step |= not raw.intended or context.in_optimizer
        self.on_bad_result(raw, written)

    def _sources(
        self, op: OpRun, raw: Raw, written: list[torch.Tensor], stained: list[StainedInput]
    ) -> tuple[int, ...]:
        """The events whose bad values the op read."""
        anew = has(op.info.name, Trait.REPLACES) and bool(written) and covers_storage(written[0])
        known = [one for one in stained if not (anew and among(one.tensor, written))]
        sources = list(dict.fromkeys(one.stain.event for one in known))
        if op.info.name != LITERAL:
            sources += self.origins.of_unknown(op, raw, written)
        if not sources:
            sources += self.origins.of_numbers(op)
        return tuple(self.origins.through_parameters(raw, sources, stained))

    def _measure(
        self,
        op: OpRun,
        raw: Raw,
        written: list[torch.Tensor],
        output: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        unintended = raw.fact.kind in (Kind.BIRTH, Kind.REVIVAL, Kind.SOURCE)
        is_asked = unintended or (raw.fact.kind is Kind.CONSTANT and not raw.intended)
        step = self.context.step
        if is_asked and self._detailed[step] < _DETAILED:
            self._detailed[step] += 1
            old = {id(written[0]): op.before} if op.before is not None and written else {}
            measure.describe(raw, op, old, output, self.context)
        elif raw.fact.kind is Kind.CONSTANT:
            measure.describe_briefly(raw, output, values)

    def _kind(
        self,
        op: OpRun,
        raw: Raw,
        stained: list[StainedInput],
        output: torch.Tensor,
        values: torch.Tensor,
    ) -> Kind:
        nan = some_nan(values)
        if not raw.fact.sources:
            if op.info.name in _FROM_OUTSIDE:
                return Kind.SOURCE
            if op.info.name == LITERAL:
                return Kind.SOURCE if nan else Kind.CONSTANT
            intended = any(not math.isfinite(number) for number in op.numbers())
            return Kind.CONSTANT if intended and (op.info.fills or not nan) else Kind.BIRTH
        origins = [self.context.journal.events.get(id) for id in raw.fact.sources]
        if raw.node is not None and raw.fact.phase is Phase.BACKWARD:
            # Bad values that were saved going forward, and none that came down the gradient.
            if all(o is not None and o.fact.phase is not Phase.BACKWARD for o in origins):
                return Kind.REVIVAL
        if all(o is not None and o.intended for o in origins):
            given = any(has_nan(one.tensor) for one in stained if one.tensor is not output)
            return Kind.BIRTH if nan and not given else Kind.PROPAGATION
        if nan and has(op.info.name, Trait.SOFTMAX) and _only_neginf(op):
            return Kind.BIRTH if self._all_masks(raw) else Kind.PROPAGATION
        return Kind.PROPAGATION

    def _caller(self, raw: Raw) -> Note | None:
        """The call of which a constant is a step, and not the user's own: torch's `logdet` writes
        its NaN as `where` does, in the instruction that has just computed the determinant."""
        last = self.context.journal.call_of(self.context.seq - 1)
        if raw.blame is not None or last is None or last.info.fills:
            return raw.blame
        same = (last.user, last.inner) == (raw.note.user, raw.note.inner)
        return last if same else None

    def _all_masks(self, raw: Raw) -> bool:
        """Whether the -inf that an op has read was meant as a mask or is the logarithm of one. A
        division by 0 or an overflow that made a whole row -inf is a fault of its own."""
        origins = self.context.journal.ancestors(
            *raw.fact.sources, through=lambda one: one.fact.kind is Kind.PROPAGATION
        )
        # Aten's own names: log, log1p, log_softmax, logsumexp ..., and logit, which is one.
        # What `logical_and` and its kin give is no number that could be bad.
        return all(
            one.fact.kind is not Kind.BIRTH or one.note.info.name.startswith("log")
            for one in origins
        )

    def _is_intended(self, raw: Raw, values: torch.Tensor) -> bool:
        """Nothing but an inf that the program made on purpose, and that has met no arithmetic."""
        if some_nan(values):
            return False
        if raw.fact.kind is Kind.CONSTANT:
            return True
        origins = (self.context.journal.events.get(id) for id in raw.fact.sources)
        return raw.fact.kind is Kind.PROPAGATION and all(
            o is not None and o.intended for o in origins
        )

    def _mark_uninitialized(self, op: OpRun) -> None:
        """Remember memory that the user's own line allocated without filling it.

        It is filled with NaN, so that reading it shows every time and not only when the memory
        happens to hold garbage. Allocations inside torch are its own business.
        """
        for tensor in flatten(op.out):
            values = plain(tensor)
            if values is None or not op.by_user:
                continue
            if values.numel() == 0:
                continue
            if values.numel() > _FILL_LIMIT:
                self.not_checked[_NOT_FILLED] = None
                continue
            raw = self._raw(Kind.UNINITIALIZED, op)
            raw.seq = None
            if self.context.journal.add(raw) is None:
                return
            values.fill_(math.nan)
            output = measure.named(measure.operand("output", tensor, self.context), raw)
            raw.fact = replace(raw.fact, output=output, numel=values.numel())
            self.context.provenance.mark(tensor, raw.fact.id, intended=False, uninitialized=True)

    def _name_allocated(self, op: OpRun, stained: list[StainedInput]) -> None:
        """What memory that nobody has filled had become when it was read first: a parameter."""
        for one in stained:
            raw = self.context.journal.events.get(one.stain.event)
            if one.stain.uninitialized and raw is not None and not op.by_engine:
                known = raw.fact.output
                if known is not None and not known.held_as and known.shape == one.tensor.shape:
                    held = measure.operand("output", one.tensor, self.context)
                    raw.fact = replace(raw.fact, output=held)

    def _raw(self, kind: Kind, op: OpRun, sources: tuple[int, ...] = ()) -> Raw:
        node, in_checkpoint = op.running.node, bool(op.note.user and op.again)
        phase = Phase.OPTIMIZER if op.optimizing else Phase.FORWARD
        if node is not None:
            phase = Phase.FORWARD if in_checkpoint else Phase.BACKWARD
        name = node_name(node) if node is not None else None
        fact = Event(
            -1,
            op.step,
            kind,
            phase,
            UNRESOLVED,
            UNRESOLVED,
            node=name,
            sources=sources,
            autocast=_in_autocast(),
        )
        raw = Raw(fact, op.note, op.seq - 1 if op.seq is not None else None)
        if node is not None:
            raw.node_seq = node._sequence_nr()
            raw.node = node if op.by_engine or not in_checkpoint else None
            raw.blame = self.context.call_of_node(node) if op.by_engine else None
        return raw

    def finish_node(self, ops: NodeOps) -> None:
        """A node that gave bad values is done: now its grad_output can be told from the rest."""
        for raw in ops.events:
            if raw.fact.kind in (Kind.BIRTH, Kind.REVIVAL) and raw.fact.grad_output is None:
                name = ops.node.name()
                self.context.shielded(name, measure.describe_grad_output, raw, ops)
                came = raw.fact.grad_output
                if raw.fact.kind is Kind.REVIVAL and came is not None and not math.isfinite(came):
                    self._lead_up(raw, ops)

    def _lead_up(self, saved: Raw, ops: NodeOps) -> None:
        """What a node gave comes of the bad gradient that it received, and not of the bad value
        that it had saved: an op behind it has revived that already."""
        of_saved = {saved.fact.id}
        for raw in ops.events:
            sources = raw.fact.sources
            received = tuple(one for one in sources if one not in of_saved and self._came(one))
            if received:
                raw.fact = replace(raw.fact, sources=received)
            elif of_saved.issuperset(sources):
                of_saved.add(raw.fact.id)

    def _came(self, source: int) -> bool:
        """Whether a gradient brought it."""
        raw = self.context.journal.events.get(source)
        return raw is not None and raw.fact.phase is Phase.BACKWARD


def _in_autocast() -> bool:
    """Whether a block of `torch.autocast` is open, by how many are: below it, where ops run, it has
    switched itself off."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0


def _reads_bad(op: OpRun, outputs: list[torch.Tensor]) -> bool:
    """Whether an operand holds bad values that is not the memory which the op fills."""
    filled = {storage_key(one) for one in outputs}
    others = (one for _, one in op.inputs() if storage_key(one) not in filled)
    return any(map(holds_bad, others))


def _picked(op: OpRun, stained: list[StainedInput]) -> list[StainedInput]:
    """Of `where(condition, a, b)` the sides whose bad elements it took; both if it took none."""
    condition = op.args[0] if op.args else None
    if op.info.name != "where" or len(stained) < 2 or not isinstance(condition, torch.Tensor):
        return stained

    def is_taken(one: StainedInput) -> bool:
        values = None if one.tensor.is_complex() else plain(one.tensor)
        if values is None:
            return False
        wanted = one.name == "self"
        sides = map(pieces, torch.broadcast_tensors(condition, values))
        return any(bool(((c == wanted) & ~v.isfinite()).any()) for c, v in zip(*sides, strict=True))

    return [one for one in stained if is_taken(one)] or stained


def _cancels(op: OpRun, raw: Raw, written: list[torch.Tensor], values: torch.Tensor) -> bool:
    """Whether infinite gradients of both signs were added: NaN, and inf on both sides of it."""
    if raw.fact.phase is not Phase.BACKWARD or not op.info.shifts or len(raw.fact.sources) < 2:
        return False
    sides = []
    for _, tensor in op.inputs():
        side = op.before if among(tensor, written) else plain(tensor)
        if side is None or side.shape != values.shape:
            return False
        sides.append(pieces(side))
    return any(
        bool(functools.reduce(torch.logical_and, map(torch.isinf, each), nan.isnan()).any())
        for nan, *each in zip(pieces(values), *sides, strict=True)
    )


def _only_neginf(op: OpRun) -> bool:
    for _, tensor in op.inputs():
        values = plain(tensor)
        if values is not None and any(not ends_of(one)[1] < math.inf for one in pieces(values)):
            return False
    return True
