"""What the recorder writes down while the program runs: calls of the forward pass, and events.

A call is noted for every op that made an autograd node, because only backward may show that the op
is the cause. An event is noted only where a non-finite value is taken or given.
"""

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gradscope.facts import Call, Event, Kind, NotChecked, Operand, Phase
from gradscope.record.schema import OpInfo
from gradscope.record.sites import ModuleFrame, Site, file_in_torch, module_path, resolve
from gradscope.source import expression, operands, parsed

_GENERATIONS = 4  # backward passes whose calls are kept: GANs and truncated BPTT reach back a few
_MOST_EVENTS = 20_000  # events kept; a run that floods itself with NaN is told at its first ones
_LEFT_OUT = NotChecked(
    "where later NaN and inf came from", f"more than {_MOST_EVENTS:,} ops gave or took them"
)
UNRESOLVED = Call("")  # until the trace is taken

# Frames between a user's line and an op that explain nothing: operator wrappers, module calls.
# Files and folders of torch's own; nothing it passes on tells them from what explains an op.
_PLUMBING = (
    "_tensor.py",
    "nn/modules/module.py",
    "_jit_internal.py",
    "overrides.py",
    "_ops.py",
    "autograd/",
    "utils/",
)


class Note(NamedTuple):
    """One forward call, before anybody asked for it."""

    info: OpInfo
    user: Site
    inner: Site
    module: ModuleFrame | None
    custom: str | None = None  # class name of a custom autograd.Function
    made_in: int | None = None  # sequence number of the node whose backward made this call
    value: float | None = None
    constant: float | None = None  # the number that add or sub took


@dataclass(slots=True)
class Raw:
    """An event while its step still runs: the `fact`, with its calls unresolved, as far as it is
    known, and what is needed to learn more of it."""

    fact: Event
    note: Note
    seq: int | None  # of the node that this call made (forward)
    node: Any = None  # the running autograd node (backward)
    node_seq: int | None = None
    blame: Note | None = None
    intended: bool = False
    cancels: bool = False  # a sum of gradients in which inf met -inf
    in_graph: bool = False  # the result requires grad
    factor: float = 1.0  # by which the op multiplied what it read


@dataclass(slots=True)
class Journal:
    """Calls by sequence number and events by id."""

    events: dict[int, Raw] = field(default_factory=dict)
    generations: deque[dict[int, Note]] = field(default_factory=lambda: deque([{}], _GENERATIONS))
    next_id: int = 0
    transforms: int = 0  # of torch.func, around the backward that runs
    not_checked: tuple[NotChecked, ...] = ()

    @property
    def calls(self) -> dict[int, Note]:
        return self.generations[-1]

    def call_of(self, seq: int) -> Note | None:
        """The call that made the node of that number."""
        number = self.noted(seq)
        return next(
            (calls[number] for calls in reversed(self.generations) if number in calls), None
        )

    def noted(self, seq: int) -> int:
        """The number under which the call was noted that made the node of that one. Each of the
        transforms around it has made one of its own before the op itself did, which alone was."""
        for number in range(seq, seq + self.transforms + 1):
            if any(number in calls for calls in self.generations):
                return number
        return seq

    def add(self, raw: Raw) -> Raw | None:
        """Keep an event; None once the run has more than anybody could read."""
        if len(self.events) >= _MOST_EVENTS:
            self.not_checked = (_LEFT_OUT,)
            return None
        raw.fact = replace(raw.fact, id=self.next_id)
        self.events[self.next_id] = raw
        self.next_id += 1
        return raw

    def turn_step(self) -> None:
        """A new step begins: its calls go into a new generation, the oldest is dropped."""
        if self.calls:
            self.generations.append({})

    def keep_only(self, ids: Iterable[int]) -> None:
        """Forget the events that nothing alive can lead back to."""
        keep = {raw.fact.id for raw in self.ancestors(*ids)}
        self.events = {id: raw for id, raw in self.events.items() if id in keep}

    def ancestors(
        self, *ids: int, through: Callable[[Raw], bool] = lambda raw: True
    ) -> Iterator[Raw]:
        """The events and all from which their bad values came, nearest first, each once; of those
        alone that values came `through`."""
        seen: set[int] = set()
        waiting = deque(ids)
        while waiting:
            current = waiting.popleft()
            raw = self.events.get(current)
            if raw is None or current in seen:
                continue
            seen.add(current)
            yield raw
            if through(raw):
                waiting.extend(raw.fact.sources)

    def freeze(self, raw: Raw) -> Event:
        call = to_call(raw.note, raw.seq)
        blame = call
        if raw.blame is not None:
            blame = to_call(raw.blame, raw.node_seq, raw.fact.node)
            made_in = raw.blame.made_in
            outer = self.call_of(made_in) if made_in is not None else None
            # Else a checkpoint ran the user's own line again in there.
            if outer is not None and outer.user == raw.blame.user:
                blame = replace(blame, formula_of=to_call(outer, made_in))
        branches = self._branches(raw) if raw.cancels else ()
        return with_texts(replace(raw.fact, call=call, blame=blame, branches=branches))

    def _branches(self, raw: Raw) -> tuple[Call, ...]:
        """The calls in which the infinite gradients began that met in a sum."""
        began = [
            next((one for one in self.ancestors(id) if one.fact.kind is not Kind.PROPAGATION), None)
            for id in raw.fact.sources
        ]
        calls = [
            to_call(one.blame or one.note, one.node_seq, one.fact.node)
            for one in sorted(filter(None, began), key=lambda one: one.node_seq or 0)
        ]
        return tuple(dict.fromkeys(calls))


def to_call(note: Note, seq: int | None = None, node: str | None = None) -> Call:
    """Resolve a noted call to lines and columns."""
    module = module_path(note.module)
    frames = tuple(
        resolve(code, lasti, module if depth == 0 else None)
        for depth, (code, lasti) in enumerate(note.user)
    )
    others = (one for one in note.inner if not file_in_torch(one[0]).startswith(_PLUMBING))
    inner = next((resolve(*frame) for frame in others), None)
    return Call(
        op=note.custom or note.info.name,
        overload="" if note.custom else note.info.overload,
        location=frames[0] if frames else None,
        inner=inner,
        frames=frames,
        node=node,
        seq=seq,
        value=note.value,
        constant=note.constant,
        view=note.info.view and not note.custom,
    )


_LONGEST = 40  # characters: a longer expression is no name any more


def with_texts(event: Event) -> Event:
    """The event, whose unnamed operands are told by their expressions."""
    if event.phase is Phase.BACKWARD and not event.saved:
        return event  # those are operands of an op inside the formula
    given = named_operands(event.blame, event.operands)
    is_saved = event.operands is event.saved
    return replace(event, saved=given) if is_saved else replace(event, inputs=given)


def named_operands(call: Call, given: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """The operands of a call, those without a name with the expressions that the user wrote for
    them, where the op was not called inside a library."""
    place = call.location
    if place is None or call.inner is not None or all(one.name for one in given):
        return given
    source = parsed(place.file)
    node = expression(source, place) if source is not None else None
    if source is None or node is None:
        return given
    written = {
        role: source.of(part)
        for role, part in operands(source, node, call.op).items()
        if not isinstance(part, ast.Constant)
    }
    texts = (written.get(one.role, "") for one in given)
    return tuple(
        one if one.name or "\n" in text or len(text) > _LONGEST else replace(one, text=text)
        for one, text in zip(given, texts, strict=True)
    )
