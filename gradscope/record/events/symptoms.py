"""When a bad value has become a harm: the loss, a leaf's gradient, or a parameter is not finite.

A bad gradient is not yet a harm: a loss scaler skips its step, a guard throws it away. It waits
until an optimizer takes it, or until the program ends without one having taken a good one since.
"""

import ctypes
import dis
import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from gradscope.facts import Call, Ending, Gradient, Kind, Phase, Subject, Symptom, Trouble
from gradscope.ops.traits import discards
from gradscope.record import graph
from gradscope.record.census import census, places, unravel
from gradscope.record.context import RunContext
from gradscope.record.events.masks import Element, find_mask
from gradscope.record.finite import holds_bad, looks_finite, norm_of, numbers, pieces, plain
from gradscope.record.held import alive, any_alive
from gradscope.record.journal import Raw, to_call
from gradscope.record.optimizers import parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import USER, kind_of
from gradscope.record.stand_ins import links

_MOST_NAMED = 400  # symptoms listed one by one a step
_SAMPLE = 1024  # values kept a gradient: enough to say by how much a fix moved it
_MOST_DESCRIBED = 2_000  # leaves
_SCALE = torch.amp.GradScaler.scale.__code__


class Symptoms:
    """Collects the symptoms of the running step and decides when they are confirmed."""

    def __init__(self, context: RunContext, on_confirmed: Callable[[], None]) -> None:
        self.context = context
        self.on_confirmed = on_confirmed
        self.gradients: tuple[Gradient, ...] = ()  # those of the last step that was looked at
        self.confirmed: list[Symptom] = []
        self._waiting: list[tuple[torch.Tensor, Symptom]] = []  # the leaf and what is wrong
        self._recovered = False  # bad gradients were thrown away before: the program means to
        self._last_bad_scalar: Raw | None = None
        self._given_up: Symptom | None = None  # over which the program raised
        self._backward_seen = False
        self._calls: dict[Any, Call | None] = {}  # of the nodes of one backward, while told

    def held(self) -> list[int]:
        """The events that symptoms, confirmed or waiting, lead back to."""
        symptoms = (*self.confirmed, *(symptom for _, symptom in self._waiting))
        found = [symptom.event for symptom in symptoms if symptom.event is not None]
        if self._last_bad_scalar is not None:
            found.append(self._last_bad_scalar.fact.id)
        if self.context.received.handed is not None:
            found.append(self.context.received.handed)
        return found

    def sent(self) -> Symptom | None:
        """The last bad value that went to other ranks."""
        handed = self.context.received.handed
        raw = self.context.journal.events.get(handed) if handed is not None else None
        return _by_event(raw, Subject.SENT, "what it sends") if raw is not None else None

    # What the context tells

    def note_bad_write(self, raw: Raw, written: Sequence[torch.Tensor]) -> None:
        if (
            raw.fact.phase is Phase.FORWARD
            and raw.in_graph
            and raw.fact.numel <= 1
            and not raw.intended
        ):
            self._last_bad_scalar = raw
        if self.context.in_optimizer or not self._backward_seen or raw.node is not None:
            return
        updated = [t for t in written if t.is_leaf and t.requires_grad]
        if updated and any(
            e.fact.phase is Phase.BACKWARD for e in self.context.journal.ancestors(raw.fact.id)
        ):
            # A hand-written update has taken a bad gradient.
            self._confirm_waiting()
            self._confirm(
                [s for t in updated if (s := self._symptom(Subject.PARAMETER, t)) is not None]
            )
            self.on_confirmed()

    def after_backward(
        self,
        one: BackwardPass,
        suspects: Sequence[torch.Tensor],
        asked: Sequence[torch.Tensor],
        result: Any,
        *,
        last: bool,
    ) -> None:
        """A backward is over; `suspects` are its roots that may be bad, `last` where no other will
        run."""
        self._backward_seen = True
        context = self.context
        losses = [
            symptom
            for root in suspects
            if (symptom := self._symptom(Subject.LOSS, root)) is not None
            and not self._is_scaled(symptom)
        ]
        gradients: list[tuple[torch.Tensor, Symptom]] = []
        if losses or context.bad_in_step or context.provenance.holds_unintended():
            gradients = self._bad_gradients(one.above, asked, result)
            self._explain([*losses, *(symptom for _, symptom in gradients)], one.above)
        if losses or gradients or last:
            leaves = graph.leaves(one.above)
            self.gradients = describe_gradients((self._leaf_name(leaf), leaf) for leaf in leaves)
        self._drop_recovered()
        self._waiting += gradients
        if losses:
            self._confirm(losses)
        if losses or (gradients and not any_alive(torch.optim.Optimizer)):
            self._confirm_waiting()
            self.on_confirmed()

    def _is_scaled(self, symptom: Symptom) -> bool:
        """Whether it is a loss that a scaler's factor alone makes inf: it skips that step, and
        takes a smaller one."""
        raw = self.context.journal.events.get(symptom.event) if symptom.event is not None else None
        return (
            raw is not None
            and raw.fact.kind is Kind.BIRTH
            and any(code is _SCALE for code, _ in raw.note.inner)
        )

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)

    def note_bad_parameters(self, held: Sequence[torch.Tensor]) -> None:
        """Some are, and nobody saw how."""
        found = (self._symptom(Subject.PARAMETER, one) for one in held)
        self._confirm([symptom for symptom in found if symptom is not None])

    def note_left_gradients(self) -> None:
        """The program is over, and nobody has looked at what its last backward gave to leaves that
        no optimizer takes."""
        left = [one for one in alive(torch.Tensor) if _is_bad_leaf(one)]
        if left and not (self._recovered or any_alive(torch.amp.GradScaler)):
            named = ((one.grad, self._leaf_name(one)) for one in left[:_MOST_NAMED])
            found = (self._symptom(Subject.GRADIENT, *one) for one in named)
            self._confirm([replace(one, step=max(one.step - 1, 0)) for one in found if one])

    def before_optimizer(self, optimizer: Any) -> None:
        if not self._waiting:
            return
        if any(_bad_grad(parameter) for parameter in parameters_of(optimizer)):
            self._confirm_waiting()
            self.on_confirmed()

    def after_optimizer(self, optimizer: Any) -> None:
        """Of a step in which something bad was made: values that became so in the update."""
        found = []
        for parameter in parameters_of(optimizer):
            stain = self.context.provenance.of(parameter)
            if stain is None:
                continue
            symptom = self._symptom(Subject.PARAMETER, parameter)
            if symptom is not None:
                found.append(symptom)
        if found:
            held = parameters_of(optimizer)
            self.gradients = describe_gradients((self._leaf_name(p), p) for p in held)
            self._confirm(found)
            self.on_confirmed()

    def settled(self, ending: Ending) -> list[Symptom]:
        """The symptoms of a program that is over. Bad gradients that it still holds are what it
        ended with, unless it has shown that it throws such gradients away, or leaves that to a
        scaler. A loss that it gave up on is a symptom though no backward followed."""
        found = list(self.confirmed)
        held = [symptom for leaf, symptom in self._waiting if _bad_grad(leaf)]
        recovered = self._recovered or len(held) < len(self._waiting)
        if held and not recovered and not any_alive(torch.amp.GradScaler):
            found += [symptom for symptom in held if symptom not in found]
        raw = self._last_bad_scalar
        if not found and raw is not None and (ending.gave_up or not self._backward_seen):
            found.append(_by_event(raw, Subject.LOSS, "loss"))
        if not found and self._given_up is not None:
            found.append(self._given_up)
        return found

    def note_given_up(
        self, error: BaseException, operands: Iterable[tuple[str, torch.Tensor]]
    ) -> None:
        """The program ends with an exception. An op may have raised it over an inf or NaN among its
        `operands`. Where Python raised it, on purpose, the innermost frame with one counts."""
        frames = (one.tb_frame for one in links(error.__traceback__))
        own = [frame for frame in frames if kind_of(frame.f_code) == USER]
        given = ((own[-1], name, tensor) for name, tensor in operands if own)
        for frame, name, tensor in (*given, *_raised_over(error)):
            stain = self.context.provenance.of(tensor)
            if stain is not None and not stain.intended:
                known = self.context.names.name(tensor, frame)
                self._given_up = self._symptom(Subject.VALUE, tensor, known or name)
            if self._given_up is not None:
                return

    # How a symptom is made

    def _symptom(
        self, what: Subject, tensor: torch.Tensor, name: str | None = None
    ) -> Symptom | None:
        values = numbers(tensor)
        if values is None or not holds_bad(tensor):
            return None
        counts = census(values)
        stain = self.context.provenance.of(tensor)
        if name is None:
            name = self.context.names.name(tensor, sys._getframe())
        return Symptom(
            trouble=Trouble.NAN if counts.nan else Trouble.INF,
            subject=what,
            step=max(self.context.step - (what is Subject.PARAMETER), 0),
            tensor=name or str(what),
            bad=counts.bad,
            numel=counts.numel,
            first_index=places(values).index,
            event=stain.event if stain is not None else None,
        )

    def _bad_gradients(
        self, above: dict[Any, list[Any]], asked: Sequence[torch.Tensor], result: Any
    ) -> list[tuple[torch.Tensor, Symptom]]:
        found: list[tuple[torch.Tensor, Symptom]] = []
        is_handed_out = bool(asked) and isinstance(result, tuple | list)
        leaves = asked if is_handed_out else graph.leaves(above)
        grads = result if is_handed_out else [leaf.grad for leaf in leaves]
        for leaf, grad in zip(leaves, grads, strict=False):
            if grad is None or len(found) >= _MOST_NAMED or not holds_bad(grad):
                continue
            symptom = self._symptom(Subject.GRADIENT, grad, self._leaf_name(leaf))
            if symptom is not None:
                found.append((leaf, symptom))
        return found

    def _leaf_name(self, leaf: torch.Tensor) -> str:
        return self.context.names.name(leaf, sys._getframe()) or "leaf"

    def _explain(self, found: Sequence[Symptom], above: dict[Any, list[Any]]) -> None:
        """Add the way to the loss to the events that the symptoms go back to."""
        context = self.context
        by_seq = {node._sequence_nr(): node for node in above}
        seen: set[int] = set()
        for symptom in found:
            if symptom.event is None or symptom.event in seen:
                continue
            for raw in context.journal.ancestors(symptom.event):
                if raw.fact.id in seen:
                    continue
                seen.add(raw.fact.id)
                if raw.fact.kind in (Kind.BIRTH, Kind.REVIVAL) and not raw.fact.path:
                    self._describe_path(raw, above, by_seq)
        self._calls.clear()

    def _describe_path(self, raw: Raw, above: dict[Any, list[Any]], by_seq: dict[int, Any]) -> None:
        seq = raw.node_seq if raw.node_seq is not None else raw.seq
        node = raw.node if raw.node in above else by_seq.get(seq) if seq is not None else None
        if node is None:  # of a graph inside the graph: a reentrant checkpoint's
            mask = self._taken_out(raw) if raw.fact.grad_output == 0 else None
            raw.fact = replace(raw.fact, hidden_by=mask)
            return
        calls = (self._call(step) for step in graph.path_to_root(node, above))
        raw.fact = replace(raw.fact, path=tuple(call for call in calls if call is not None))
        if raw.fact.grad_output == 0 and raw.fact.output is not None:
            history = self.context.history
            element = Element(raw.fact.index, raw.fact.output.shape)
            mask = find_mask(node, element, above, history, self._call)
            raw.fact = replace(raw.fact, hidden_by=mask or self._taken_out(raw))

    def _taken_out(self, raw: Raw) -> Call | None:
        """The mask that took the same call's own bad value out again, going forward. The zero may
        have come from beyond it: what the mask put there is often 0, and a factor of something."""
        journal = self.context.journal
        kills = (kill for kill in journal.events.values() if kill.fact.kind is Kind.KILL)
        for kill in kills:
            born = (one for one in journal.ancestors(kill.fact.id) if one.fact.kind is Kind.BIRTH)
            same = any(one.fact.phase is Phase.FORWARD and one.seq == raw.node_seq for one in born)
            if same and kill.fact.phase is Phase.FORWARD and discards(kill.note.info.name):
                return to_call(kill.note, kill.seq)
        return None

    def _call(self, node: Any) -> Call | None:
        if node not in self._calls:
            self._calls[node] = self.context.call(node)
        return self._calls[node]

    # Confirmed

    def _confirm(self, found: Sequence[Symptom]) -> None:
        known = {(s.kind, s.step, s.tensor) for s in self.confirmed}
        self.confirmed += [s for s in found if (s.kind, s.step, s.tensor) not in known]

    def _confirm_waiting(self) -> None:
        self._confirm([symptom for _, symptom in self._waiting])
        self._waiting = []

    def _drop_recovered(self) -> None:
        """Gradients that were zeroed or computed anew since, and that nothing had taken."""
        still = [(leaf, symptom) for leaf, symptom in self._waiting if _bad_grad(leaf)]
        self._recovered |= len(still) < len(self._waiting)
        self._waiting = still


def _by_event(raw: Raw, what: Subject, name: str) -> Symptom:
    fact, counts = raw.fact, (raw.fact.bad or 1, raw.fact.numel or 1)
    kind = Trouble.NAN if fact.output is None or fact.output.nan else Trouble.INF
    return Symptom(kind, what, fact.step, name, *counts, fact.index, fact.id)


def _raised_over(error: BaseException) -> Iterator[tuple[FrameType, str, torch.Tensor]]:
    """The tensors in the variables of the frame that raised, and of its callers up to the first of
    the user's, where it was a statement that raised. Of the user's own those with a graph:
    data may hold NaN on purpose."""
    way = list(links(error.__traceback__))
    code = way[-1].tb_frame.f_code.co_code if way else b""
    if not way or code[way[-1].tb_lasti] != dis.opmap["RAISE_VARARGS"]:
        return
    for frame in (one.tb_frame for one in reversed(way)):
        is_own = kind_of(frame.f_code) == USER
        for name, value in frame.f_locals.items():
            if isinstance(value, torch.Tensor) and (value.requires_grad or not is_own):
                yield frame, name, value
        if is_own:
            return


def _bad_grad(leaf: torch.Tensor) -> bool:
    return leaf.grad is not None and holds_bad(leaf.grad)


def _is_bad_leaf(tensor: torch.Tensor) -> bool:
    try:
        return tensor.is_leaf and _bad_grad(tensor)
    except RuntimeError:  # a view whose base was written to, as FSDP's are of a flat parameter
        return False


def describe_gradients(leaves: Iterable[tuple[str, torch.Tensor]]) -> tuple[Gradient, ...]:
    """One fact for each leaf that has a gradient: small enough to keep, exact enough to compare."""
    found: list[Gradient] = []
    for name, leaf in leaves:
        if leaf.grad is None or len(found) >= _MOST_DESCRIBED:
            continue
        values = plain(leaf.grad)
        if values is not None:
            found.append(_describe(name, values.detach()))
    return tuple(found)


def _describe(name: str, values: torch.Tensor) -> Gradient:
    digest = hashlib.blake2b(digest_size=16)
    bad, norm = 0, 0.0
    for piece in pieces(values):
        kept = piece
        if not looks_finite(piece):
            bad += piece.numel() - int(torch.count_nonzero(torch.isfinite(piece)).item())
            kept = torch.nan_to_num(piece, nan=0.0, posinf=0.0, neginf=0.0)
        norm = math.hypot(norm, norm_of(kept))
        if piece.numel():
            own = piece.cpu().resolve_neg().contiguous()
            digest.update((ctypes.c_char * own.nbytes).from_address(own.data_ptr()))
    return Gradient(
        name=name,
        shape=tuple(values.shape),
        numel=values.numel(),
        bad=bad,
        norm=norm,
        digest=digest.hexdigest(),
        sample=_sample(values.reshape(1) if values.dim() == 0 else values),
    )


def _sample(values: torch.Tensor) -> tuple[float, ...]:
    """Values at even distances, in row-major order."""
    count = min(values.numel(), _SAMPLE)
    if not count:
        return ()
    places = torch.arange(count, device=values.device) * values.numel() // count
    return tuple(values[unravel(places, values.shape)].double().tolist())
