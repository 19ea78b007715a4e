"""The closer look at an op that took or gave bad values: what kind of event it is.

Runs only near non-finite values, so it may count, compare and copy; the healthy path is in
`mode.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from gradscope.facts import Kind, Phase
from gradscope.record import measure
from gradscope.record.finite import looks_finite, plain
from gradscope.record.journal import Note, Raw
from gradscope.record.provenance import Stain, covers_storage
from gradscope.record.schema import SOFTMAX_FAMILY, OpInfo
from gradscope.record.spot import NodeOps, Spot

if TYPE_CHECKING:
    from gradscope.record.recorder import Recorder

_DETAILED = 200  # events measured in full a run: the first ones are those that people ask about
_FILL_LIMIT = 1_000_000  # elements of uninitialised memory that are worth filling
_OPTIMIZER_FILES = ("torch/optim/", "torch\\optim\\")
_BAD_LITERALS = "lift_fresh"
_FROM_OUTSIDE = ("set", "from_file", "_pin_memory")  # `torch.load` lays tensors over read memory


class Examiner:
    """Turns one op near bad values into events and stains."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.detailed = 0

    def examine(
        self,
        info: OpInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        seq: int | None,
        before: torch.Tensor | None,
        spot: Spot,
    ) -> None:
        if info.allocates:
            self._mark_uninitialized(info, out, spot)
            return
        written = info.written_tensors(args, kwargs)
        outputs = written or _flatten(out)
        inputs = [(name, tensor) for name, tensor in info.tensors(args, kwargs)]
        stained = _picked(info, args, self._stained(inputs, written))
        bad_outputs = [tensor for tensor in outputs if _is_bad(tensor)]
        if not bad_outputs:
            self._all_outputs_finite(info, outputs, written, stained, spot, seq)
            return
        self._bad_result(
            info, args, kwargs, inputs, written, stained, bad_outputs, spot, seq, before
        )

    # What came in

    def _stained(
        self, inputs: list[tuple[str, torch.Tensor]], written: list[torch.Tensor]
    ) -> list[tuple[str, torch.Tensor, Stain]]:
        """The inputs whose bad values have a known origin. A tensor that the op has just written
        is judged by what was known before: its old values are gone."""
        found = []
        for name, tensor in inputs:
            stain = self.recorder.provenance.of(tensor)
            if stain is not None and (_among(tensor, written) or _is_bad(tensor)):
                found.append((name, tensor, stain))
        return found

    def _unknown(
        self,
        inputs: list[tuple[str, torch.Tensor]],
        written: list[torch.Tensor],
        stained: list[tuple[str, torch.Tensor, Stain]],
    ) -> list[tuple[str, torch.Tensor]]:
        """Bad inputs that no observed op made: they came in from outside."""
        known = {id(tensor) for _, tensor, _ in stained}
        return [
            (name, tensor)
            for name, tensor in inputs
            if id(tensor) not in known
            and self.recorder.provenance.of(tensor) is None
            and not _among(tensor, written)
            and _is_bad(tensor)
        ]

    # Finite results

    def _all_outputs_finite(
        self,
        info: OpInfo,
        outputs: list[torch.Tensor],
        written: list[torch.Tensor],
        stained: list[tuple[str, torch.Tensor, Stain]],
        spot: Spot,
        seq: int | None,
    ) -> None:
        for tensor in written:
            if self.recorder.provenance.of(tensor) is not None and covers_storage(tensor):
                self.recorder.provenance.clear(tensor)
        if _reads_no_values(info):
            return
        anew = info.name in ("copy", "fill", "zero")
        hidden = [stain for _, tensor, stain in stained if not (anew and _among(tensor, written))]
        if hidden and any(plain(tensor) is not None for tensor in outputs):
            raw = self._raw(Kind.KILL, info, spot, seq)
            raw.sources = tuple(dict.fromkeys(stain.event for stain in hidden))
            self.recorder.journal.add(raw)

    # Bad results

    def _bad_result(
        self,
        info: OpInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[tuple[str, torch.Tensor]],
        written: list[torch.Tensor],
        stained: list[tuple[str, torch.Tensor, Stain]],
        bad_outputs: list[torch.Tensor],
        spot: Spot,
        seq: int | None,
        before: torch.Tensor | None,
    ) -> None:
        recorder = self.recorder
        unknown = self._unknown(inputs, written, stained)
        output = bad_outputs[0]
        values = plain(output)
        assert values is not None
        raw = self._raw(Kind.PROPAGATION, info, spot, seq)
        raw.in_graph = output.requires_grad or seq is not None
        overwrites = (
            info.name in ("copy", "fill", "zero") and bool(written) and covers_storage(written[0])
        )
        raw.sources = tuple(
            dict.fromkeys(
                stain.event
                for name, tensor, stain in stained
                if not (overwrites and _among(tensor, written))
            )
        )
        if unknown and info.name != _BAD_LITERALS:
            raw.sources += tuple(
                self._came_from_outside(name, tensor, raw) for name, tensor in unknown
            )
        raw.sources = tuple(self._through_parameters(raw, stained))
        raw.kind = self._kind(raw, info, args, kwargs, inputs, stained, output, values)
        filled = self._fills_parameter(raw, written)
        if filled is not None:
            raw.kind, raw.phase, output = Kind.SOURCE, Phase.DATA, filled
        raw.innocent = self._is_innocent(raw, values, stained)
        if recorder.journal.add(raw) is None:
            return
        for tensor in bad_outputs:
            recorder.provenance.mark(tensor, raw.id, innocent=raw.innocent)
        wants_detail = raw.kind in (Kind.BIRTH, Kind.REVIVAL, Kind.SOURCE) or (
            raw.kind is Kind.MINTED and not raw.innocent
        )
        if wants_detail and self.detailed < _DETAILED:
            self.detailed += 1
            old = {id(written[0]): before} if before is not None and written else {}
            measure.describe(raw, info, args, kwargs, inputs, old, output, recorder, spot.running)
        elif raw.kind is Kind.MINTED:
            measure.describe_briefly(raw, output, values)
        if raw.node is not None:
            spot.running.events.append(raw)
        # No inf that an optimizer writes is meant.
        recorder.bad_in_step |= not raw.innocent or recorder.in_optimizer is not None
        recorder.note_bad_write(raw, written)

    def _kind(
        self,
        raw: Raw,
        info: OpInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[tuple[str, torch.Tensor]],
        stained: list[tuple[str, torch.Tensor, Stain]],
        output: torch.Tensor,
        values: torch.Tensor,
    ) -> Kind:
        if not raw.sources:
            if info.name in _FROM_OUTSIDE:
                return Kind.SOURCE
            if info.name == _BAD_LITERALS:
                return Kind.SOURCE if bool(torch.isnan(values).any()) else Kind.MINTED
            constants = [v for _, v in _numbers(info, args, kwargs) if not math.isfinite(v)]
            if constants and (info.fills or not bool(torch.isnan(values).any())):
                return Kind.MINTED
            return Kind.BIRTH
        if raw.phase is Phase.BACKWARD and raw.node is not None and self._is_revival(stained, raw):
            return Kind.REVIVAL
        origins = [self.recorder.journal.events.get(id) for id in raw.sources]
        if all(origin is not None and origin.innocent for origin in origins):
            fresh_nan = bool(torch.isnan(values).any()) and not any(
                _has_nan(tensor) for _, tensor, _ in stained if not _among(tensor, [output])
            )
            return Kind.BIRTH if fresh_nan else Kind.PROPAGATION
        if info.name in SOFTMAX_FAMILY and _only_neginf(inputs) and bool(torch.isnan(values).any()):
            return Kind.BIRTH
        return Kind.PROPAGATION

    def _is_revival(self, stained: list[tuple[str, torch.Tensor, Stain]], raw: Raw) -> bool:
        """Bad values that were saved going forward, and none that came down the gradient."""
        events = self.recorder.journal.events
        return all(
            (origin := events.get(id)) is not None and origin.phase is not Phase.BACKWARD
            for id in raw.sources
        )

    def _is_innocent(
        self, raw: Raw, values: torch.Tensor, stained: list[tuple[str, torch.Tensor, Stain]]
    ) -> bool:
        if bool(torch.isnan(values).any()):
            return False
        if raw.kind is Kind.MINTED:
            return True
        events = self.recorder.journal.events
        return raw.kind is Kind.PROPAGATION and all(
            (origin := events.get(id)) is not None and origin.innocent for id in raw.sources
        )

    # Origins outside the observed ops

    def _came_from_outside(self, name: str, tensor: torch.Tensor, user: Raw) -> int:
        """An event for bad values that were already there when an op first read them."""
        recorder = self.recorder
        raw = Raw(
            id=-1, step=user.step, kind=Kind.SOURCE, phase=Phase.DATA, note=user.note, seq=user.seq
        )
        added = recorder.journal.add(raw)
        if added is None:
            return -1
        # A buffer that holds inf and no NaN is a mask.
        raw.innocent = recorder.names.kin(tensor) == "buffer" and not _has_nan(tensor)
        recorder.provenance.mark(tensor, raw.id, innocent=raw.innocent)
        measure.describe_source(raw, name, tensor, recorder)
        return raw.id

    def _through_parameters(
        self, raw: Raw, stained: list[tuple[str, torch.Tensor, Stain]]
    ) -> list[int]:
        """Where a library call (load_state_dict) filled a parameter or buffer with bad values, or a
        parameter holds an inf, the op that first used it is where the user's trouble begins. No
        parameter is meant to be inf, unlike a mask."""
        recorder = self.recorder
        sources = list(raw.sources)
        if raw.note.info.written:
            return sources
        for name, tensor, stain in stained:
            filled = recorder.journal.events.get(stain.event)
            kin = recorder.names.kin(tensor)
            if filled is None or kin not in ("parameter", "buffer"):
                continue
            if filled.phase is Phase.DATA and not filled.note.info.written:
                continue  # its first use is known
            by_library = (
                filled.kind is Kind.SOURCE and filled.note.info.written and filled.note.inner
            )
            meant = stain.innocent and kin == "buffer"
            literal = self._is_from_outside([stain.event])
            if meant or not (by_library or stain.innocent or literal):
                continue
            origin = Raw(
                id=-1,
                step=raw.step,
                kind=Kind.SOURCE,
                phase=Phase.DATA,
                note=raw.note,
                seq=raw.seq,
                sources=(stain.event,),
            )
            if recorder.journal.add(origin) is None:
                continue
            measure.describe_source(origin, name, tensor, recorder)
            sources[sources.index(stain.event)] = origin.id
            recorder.provenance.mark(tensor, origin.id, innocent=False)
        return sources

    def _fills_parameter(self, raw: Raw, written: list[torch.Tensor]) -> torch.Tensor | None:
        """The parameter or buffer into which an op put values that were bad before any training:
        a NaN literal, a checkpoint."""
        if not written or raw.phase is not Phase.FORWARD or not raw.sources:
            return None
        held = self.recorder.names.holder(written[0])
        if held is None:
            return None
        meant = all(
            (origin := self.recorder.journal.events.get(id)) is not None and origin.innocent
            for id in raw.sources
        )
        return held if not meant and self._is_from_outside(raw.sources) else None

    def _is_from_outside(self, ids: Iterable[int]) -> bool:
        """Whether values came in as literals or data, and no arithmetic made them."""
        past = [raw for id in ids for raw in self.recorder.journal.ancestors(id)]
        return all(
            raw.kind in (Kind.SOURCE, Kind.MINTED)
            or (
                raw.kind is Kind.PROPAGATION
                and raw.phase in (Phase.FORWARD, Phase.DATA)
                and _carries(raw)
            )
            for raw in past
        )

    def _mark_uninitialized(self, info: OpInfo, out: Any, spot: Spot) -> None:
        """Remember memory that the user's own line allocated without filling it.

        It is filled with NaN, so that reading it shows every time and not only when the memory
        happens to hold garbage. Allocations inside torch are its own business.
        """
        for tensor in _flatten(out):
            values = plain(tensor)
            if values is None or not spot.by_user:
                continue
            if values.numel() > _FILL_LIMIT or values.numel() == 0:
                continue
            raw = self._raw(Kind.UNINITIALIZED, info, spot, None)
            if self.recorder.journal.add(raw) is None:
                return
            values.fill_(math.nan)
            raw.output = measure.named(measure.operand("output", tensor, self.recorder), raw)
            raw.numel = values.numel()
            self.recorder.provenance.mark(tensor, raw.id, innocent=False, uninitialized=True)

    # The frame of an event

    def _raw(self, kind: Kind, info: OpInfo, spot: Spot, seq: int | None) -> Raw:
        recorder = self.recorder
        node = spot.running.node
        note = Note(info, spot.user, spot.inner, spot.module)
        raw = Raw(
            id=-1,
            step=spot.step,
            kind=kind,
            phase=_phase(spot),
            note=note,
            seq=seq - 1 if seq is not None else None,
        )
        if node is not None:
            raw.node_name = node.name().removeprefix("torch::autograd::")
            raw.node_seq = node._sequence_nr()
            raw.node = node
            if spot.by_engine:
                raw.blame = recorder.call_of_node(node)
            elif spot.user and spot.again:
                raw.node = None
        return raw

    def finish_node(self, ops: NodeOps) -> None:
        """A node that gave bad values is done: now its grad_output can be told from the rest."""
        for raw in ops.events:
            if raw.kind in (Kind.BIRTH, Kind.REVIVAL) and raw.grad_output is None:
                measure.describe_grad_output(raw, ops)


def _picked(
    info: OpInfo, args: tuple[Any, ...], stained: list[tuple[str, torch.Tensor, Stain]]
) -> list[tuple[str, torch.Tensor, Stain]]:
    """Of `where(condition, a, b)` the sides whose bad elements it took; both if it took none."""
    if info.name != "where" or len(stained) < 2 or not isinstance(args[0], torch.Tensor):
        return stained
    condition = args[0]

    def is_taken(name: str, tensor: torch.Tensor) -> bool:
        values = None if tensor.is_complex() else plain(tensor)
        taken = condition if name == "self" else ~condition
        return values is not None and bool((taken & ~torch.isfinite(values)).any())

    return [one for one in stained if is_taken(one[0], one[1])] or stained


def _reads_no_values(info: OpInfo) -> bool:
    """Ops that take a tensor for its shape and dtype: zeros_like, new_full."""
    return info.name.endswith("_like") or info.name.startswith("new_")


def _carries(raw: Raw) -> bool:
    """Ops that lay values down somewhere else as they are."""
    return raw.note.info.name in (
        "copy",
        "fill",
        "masked_fill",
        "index_put",
        "clone",
        "_to_copy",
        "set",
    )


def _phase(spot: Spot) -> Phase:
    if spot.running.node is not None:
        return Phase.FORWARD if spot.user and spot.again else Phase.BACKWARD
    if spot.optimizing and any(
        part in code.co_filename for code, _ in spot.inner for part in _OPTIMIZER_FILES
    ):
        return Phase.OPTIMIZER
    return Phase.FORWARD


def _flatten(out: Any) -> list[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, list | tuple):
        return [tensor for item in out for tensor in _flatten(item)]
    return []


def _is_bad(tensor: torch.Tensor) -> bool:
    values = plain(tensor)
    return values is not None and values.numel() > 0 and not looks_finite(values)


def _has_nan(tensor: torch.Tensor) -> bool:
    values = plain(tensor)
    return values is not None and bool(torch.isnan(values).any())


def _among(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    return any(tensor is other for other in others)


def _only_neginf(inputs: list[tuple[str, torch.Tensor]]) -> bool:
    for _, tensor in inputs:
        values = plain(tensor)
        if values is not None and bool((torch.isnan(values) | torch.isposinf(values)).any()):
            return False
    return True


def _numbers(
    info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, float]]:
    """The Python numbers among the arguments; a 0-d tensor without a graph counts as one, since
    `torch.where(mask, x, -inf)` wraps its constant."""
    found = []
    for name, value in info.named_arguments(args, kwargs):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found.append((name, float(value)))
    return found
