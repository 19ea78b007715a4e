"""What is noted while a program runs, in case autograd refuses something later: writes, updates,
and what the last backward passes ran through."""

import re
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from types import CodeType, FrameType, FunctionType, GeneratorType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.dataclass import dataclass
from gradscope.facts import Carried, Location
from gradscope.record import sites
from gradscope.record.context import RunContext
from gradscope.record.events.provenance import storage_key
from gradscope.record.grad_modes import guard_of, is_statement, switched_off_at
from gradscope.record.held import alive, parts_of, variables
from gradscope.record.journal import Note
from gradscope.record.optimizers import Work, held_by, parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.schema import OpInfo
from gradscope.record.stand_ins import behind, is_elsewhere, stand_in

_sequence_nr = torch._C._autograd._get_sequence_nr
_PASSES = 4  # backward passes whose graphs are known, as in the journal
_MOST_PASSES = 16
_MOST_WRITES = 4_096
_MOST_UPDATES = 16
_MOST_MODULES = 1_000  # whose attributes are looked at
_HOLDERS = (torch.Tensor, list, tuple)
_LARGEST = 20_000  # nodes of a graph that is kept in mind
_Optimizer = tuple[weakref.ref[Any], sites.Site]  # with where it was made, or loaded


@dataclass(frozen=True, slots=True)
class Noted:
    """A write: the memory that it went to, and the number that the next node was to get. `inner`:
    a library made it. `within`: the backward of a custom Function did."""

    storage: StorageWeakRef  # keeps the address from being given to another
    seq: int
    op: str
    site: sites.Site
    module: str
    recorded: bool
    inner: bool
    within: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """A backward pass that is over. `above` are the nodes that it reached, by number, with those
    that hand them their gradient; `carried` what the program then held of graphs."""

    above: Mapping[int, tuple[int, ...]]
    until: int  # the number of the first node that was made after it
    place: Location
    carried: Mapping[int, Sequence[Carried]]
    calls: Mapping[int, Note]  # of what is carried
    frees: bool  # the graph


@dataclass(slots=True)
class Updated:
    optimizer: weakref.ref[Any]
    site: sites.Site
    seq: int

    @property
    def parameters(self) -> list[torch.Tensor]:
        optimizer = self.optimizer()
        return list(parameters_of(optimizer)) if optimizer is not None else []


class Switches:
    """The calls of `torch.set_grad_enabled` in one thread, by the instruction that makes them: what
    they were given last. Which of them are no `with` is asked of the source, once autograd raises.
    """

    def __init__(self) -> None:
        self.had_grad = True  # when the program ended
        # In the order of their last calls; the code is kept, so that its identity is no other's.
        self._calls: dict[tuple[int, int, bool], tuple[CodeType, sites.Site]] = {}

    def begin(self, stack: ExitStack, thread: int) -> None:
        """Note them until `stack` ends."""
        kind: Any = torch.set_grad_enabled
        original, calls = kind.__init__, self._calls

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if is_elsewhere(thread):
                return
            frame = sys._getframe(1)
            code, mode = frame.f_code, bool(self.mode)
            key = id(code), frame.f_lasti, mode
            is_told = not mode and sites.kind_of(code) == sites.USER
            calls.pop(key, None)
            calls[key] = code, sites.note_site(frame)[0] if is_told else ()

        stand_in(stack, kind, "__init__", __init__)

    def left_off(self, frame: FrameType | None) -> tuple[Location, ...]:
        """The program's frames, innermost first, at the last statement that has switched them off,
        where they are off in the end. Of one that was not seen, what the file of `frame` tells."""
        if self.had_grad:
            return ()
        for (_, lasti, mode), (code, site) in reversed(self._calls.items()):
            if (mode or site) and is_statement(code, lasti):
                if mode:
                    break
                return tuple(sites.resolve(*one) for one in site)
        read = switched_off_at(frame.f_code) if frame is not None else None
        return (read,) if read is not None else ()


def _left_on() -> Location | None:
    """The `with torch.no_grad()` in which a generator waits, having handed a value out: it holds
    for whoever takes that."""
    held = (one.gi_frame for one in alive(GeneratorType) if one.gi_frame and not one.gi_running)
    guards = (guard_of(((frame.f_code, frame.f_lasti),)) for frame in held if frame.f_lasti >= 0)
    return next(filter(None, guards), None)


class Notes:
    """The writes, the updates and the graphs of the last passes, of steps that are looked at in
    full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.writes: deque[Noted] = deque(maxlen=_MOST_WRITES)
        self.updates: deque[Updated] = deque(maxlen=_MOST_UPDATES)
        self._made: list[_Optimizer] = []
        self._loaded: list[_Optimizer] = []
        self.passes: list[Pass] = []  # the latest, and the last one at each place before these
        self.left_on: Location | None = None  # what had switched gradients off when autograd raised
        self.switches = Switches()

    def note_refused(self) -> None:
        """Autograd raises, and the program's frames are still there."""
        self.left_on = _left_on() if not torch.is_grad_enabled() else None

    def optimizer_made(self, optimizer: Any, frame: FrameType) -> None:
        _note_optimizer(self._made, optimizer, frame)

    def optimizer_loaded(self, optimizer: Any, frame: FrameType) -> None:
        _note_optimizer(self._loaded, optimizer, frame)

    def place_of(self, optimizer: Any) -> Location | None:
        """Where an optimizer was made."""
        return _place_of(optimizer, self._made)

    def loaded_at(self, optimizer: Any) -> Location | None:
        """Where an optimizer was given its state last."""
        return _place_of(optimizer, reversed(self._loaded))

    def waiting(self, after: Sequence[Updated]) -> Iterator[set[int]]:
        """The parameters, by id, of each optimizer that is not among these updates."""
        stepped = [one.optimizer() for one in after]
        for optimizer in (one() for one, _ in self._made):
            if optimizer is not None and not any(optimizer is one for one in stepped):
                yield held_by(optimizer)

    def is_apart(self, after: Sequence[Updated], some: set[int], none: set[int]) -> bool:
        """Whether an optimizer that is not among these updates holds some of these parameters and
        none of those, by id."""
        return any(some & held and not none & held for held in self.waiting(after))

    def note_update(self, work: Work) -> None:
        self.updates.append(
            Updated(weakref.ref(work.optimizer), sites.note_site(work.frame)[0], _sequence_nr())
        )

    def note_write(self, info: OpInfo, tensor: Any, frame: FrameType) -> Noted | None:
        """An op outside of optimizers, and of backward except for a custom Function's, is about to
        write a tensor."""
        key = storage_key(tensor) if isinstance(tensor, torch.Tensor) else None
        if key is None:
            return None
        user, inner = sites.note_site(frame, self._context.module)
        if not user:
            return None
        module = _library_layer(self._context.module) if inner else ""
        recorded = torch.is_grad_enabled() and tensor.requires_grad
        reference = StorageWeakRef(tensor.untyped_storage())
        how = recorded, bool(inner), self._context.running.node is not None
        noted = Noted(reference, _sequence_nr(), info.name, user, module, *how)
        self.writes.append(noted)
        return noted

    def note_pass(self, one: BackwardPass) -> None:
        frame = sites.user_frame(one.frame)
        place = sites.place_of(sites.user_site(frame))
        if frame is None or place is None or not one.nodes:
            return
        above: dict[int, tuple[int, ...]] = {}
        if len(one.above) <= _LARGEST:
            above = {
                node._sequence_nr(): tuple(one._sequence_nr() for one in by)
                for node, by in one.above.items()
            }
        carried = held_graphs(frame, place)
        noted = ((number, self._context.journal.call_of(number)) for number in carried)
        calls = {number: note for number, note in noted if note is not None}
        frees = not any(one.args[1:2])  # `retain_graph`
        self.passes.append(Pass(above, _sequence_nr(), place, carried, calls, frees))
        # A loss that is computed now and then may have left something long ago.
        before, latest = self.passes[:-_PASSES], self.passes[-_PASSES:]
        later = {one.place for one in latest}
        self.passes = [*(one for one in before if one.place not in later), *latest]
        del self.passes[:-_MOST_PASSES]


def _note_optimizer(known: list[_Optimizer], optimizer: Any, frame: FrameType) -> None:
    if len(known) < _MOST_UPDATES:
        known.append((weakref.ref(optimizer), sites.note_site(frame)[0]))


def _place_of(optimizer: Any, known: Iterable[_Optimizer]) -> Location | None:
    sites_of = (site for one, site in known if one() is optimizer)
    return next(map(sites.place_of, sites_of), None)


def held_graphs(frame: FrameType, place: Location) -> dict[int, list[Carried]]:
    """What the variables that a frame reads, and the objects in them, hold of graphs: by the number
    of the node that made it."""
    found: dict[int, list[Carried]] = {}
    scope = frame.f_locals
    if scope is not frame.f_globals:
        named = (name for name in frame.f_code.co_names if name in frame.f_globals)
        scope = {**{name: frame.f_globals[name] for name in named}, **scope}
    held = [(name, value, 0) for name, value in variables(scope)]
    for name, value, depth in held:
        known = _numbers(value)
        for number in known:
            one = Carried(name, place, "" if _is_tensor(value) else type(value).__name__)
            found.setdefault(number, []).append(one)
        if known or depth > 1 or isinstance(value, FunctionType):
            continue
        if not isinstance(value, torch.nn.Module):
            held += [(part, it, depth + 1) for part, it in parts_of(name, value)]
        elif any(map(_holds_graph, islice(value.modules(), _MOST_MODULES))):
            held += [(part, it, 2) for part, it in _attributes(name, value)]
    return found


def _attributes(name: str, model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for path, module in islice(model.named_modules(prefix=name), _MOST_MODULES):
        owner = re.sub(r"\.(\d+)", r"[\1]", path)
        yield from parts_of(owner, module)
        yield from ((f"{owner}.{key}", it) for key, it in module._buffers.items())


def _holds_graph(module: torch.nn.Module) -> bool:
    """Asked of each module in each step, where hardly one does."""
    held = (*vars(module).values(), *module._buffers.values())
    return any(isinstance(one, _HOLDERS) and _numbers(one) for one in held)


def _numbers(value: Any) -> list[int]:
    """Those of the nodes that made a tensor, or the tensors of a list."""
    some = (value,) if _is_tensor(value) else value if isinstance(value, list | tuple) else ()
    nodes = [one.grad_fn for one in some if _is_tensor(one) and one.requires_grad]
    return [node._sequence_nr() for node in nodes if node is not None]


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _library_layer(module: sites.ModuleFrame | None) -> str:
    """The class of the innermost running module, where a library wrote it."""
    if module is None:
        return ""
    kind = type(module.module)
    code = getattr(behind(kind.forward), "__code__", None)
    return kind.__name__ if code is not None and sites.kind_of(code) == sites.LIBRARY else ""
