"""Which gradients a backward pass made or added to, which of those it added to were old, and how
the program can clear them with the names that it has where it asks for backward."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType, FunctionType
from typing import Any

import torch

from gradscope.facts import Clearing
from gradscope.record.finite import is_zero
from gradscope.record.held import parts_of, scopes_in, variables
from gradscope.record.optimizers import parameters_of
from gradscope.record.passes import Graded
from gradscope.record.sites import file_in_torch, instructions, note_site, resolve, user_frames

_VARIABLES = ("p", "parameter", "leaf", "tensor")  # of a loop that we write
_HOLDERS: tuple[tuple[Any, Callable[[Any], Iterator[Any]]], ...] = (
    (torch.optim.Optimizer, parameters_of),
    (torch.nn.Module, lambda module: module.parameters()),
    ((list, tuple), iter),
    (dict, lambda values: iter(values.values())),
)

# Python 3.13 has `STORE_FAST_STORE_FAST` and the like, of two names.
_BINDS = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")

Versions = dict[int, tuple[int, int]]  # leaf -> its gradient and the version of that, by id


def clearing_of(
    frame: FrameType, leaves: Sequence[torch.Tensor], *, after: bool = False
) -> Clearing | None:
    """For the line above the call of a backward, which `frame` runs, or below that of a step. None
    where no names of the user's lead to the leaves, or where a library makes the call, as a trainer
    does, whose loop is not in the user's file."""
    frames = user_frames(frame)
    if not frames or not leaves or not all(file_in_torch(code) for code, _ in note_site(frame)[1]):
        return None
    lines = _lines(frames[0], {id(leaf) for leaf in leaves})
    place = resolve(frames[0].f_code, frames[0].f_lasti)
    return Clearing(lines, place, after) if lines else None


def _lines(frame: FrameType, wanted: set[int]) -> tuple[str, ...]:
    held = list(_held(frame))
    for kind, holds in _HOLDERS:
        # The smallest of those that hold all: an optimizer of one model, and not of two.
        found = [
            (len(inside), place, name)
            for place, (name, value) in enumerate(held)
            if isinstance(value, kind) and wanted <= (inside := {id(one) for one in holds(value)})
        ]
        if found:
            _, _, name = min(found)
            if kind in (torch.optim.Optimizer, torch.nn.Module):
                return (f"{name}.zero_grad()",)
            values = f"{name}.values()" if kind is dict else name
            taken = {*frame.f_locals, *frame.f_globals}
            one = next((free for free in _VARIABLES if free not in taken), _VARIABLES[0])
            return (f"for {one} in {values}:", f"    {one}.grad = None")
    optimizers = [pair for pair in held if isinstance(pair[1], torch.optim.Optimizer)]
    together = _covering(optimizers, parameters_of, wanted)
    if together:
        return tuple(f"{name}.zero_grad()" for name in together)
    return tuple(f"{name}.grad = None" for name in _covering(held, lambda value: (value,), wanted))


def _covering(
    held: Iterable[tuple[str, Any]], holds: Callable[[Any], Iterable[Any]], wanted: set[int]
) -> list[str]:
    """The first names that hold all that is wanted, each something that those before it do not;
    none where they do not hold it all."""
    names, left = [], set(wanted)
    for name, value in held:
        inside = left & {id(one) for one in holds(value)}
        if inside:
            names.append(name)
            left -= inside
    return names if not left else []


def _held(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """What the names of a frame hold, and what is one step away from them: as an attribute, or in a
    container."""
    named = (pair for scope in scopes_in(frame) for pair in variables(scope))
    late = _bound_later(frame)
    found = [(name, value) for name, value in named if name.isidentifier() and name not in late]
    yield from found
    for name, value in found:
        if not isinstance(value, FunctionType):  # what it encloses has no name here
            yield from parts_of(name, value)


def _bound_later(frame: FrameType) -> set[str]:
    """The names that its code binds below the running call alone: in the first turn of a loop they
    hold nothing yet."""
    code = frame.f_code
    given = code.co_argcount + code.co_kwonlyargcount
    above, below = {*code.co_varnames[:given]}, set[str]()
    for one in instructions(code):
        if one.opname.startswith(_BINDS):
            names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
            (above if one.offset < frame.f_lasti else below).update(names)
    return below - above


class Freshness:
    """Follows the gradients of leaves from pass to pass.

    `stale` are the leaves, by id, whose gradients of an earlier step the last pass has added to;
    `graded` those to which it gave one other than 0. Both are None where it was not measured.
    `clearing` is what would have cleared the stale ones before that pass.
    """

    def __init__(self) -> None:
        self.stale: set[int] | None = set()
        self.graded: set[int] | None = None
        self.clearing: Clearing | None = None
        self._stepped = False  # parameters were updated since the last pass
        self._before: Versions = {}
        self._left: Versions = {}  # as the last updates left them

    def note_update(self) -> None:
        self._stepped = True

    def note_left(self, optimizer: Any) -> None:
        """Its update is over."""
        self._left |= versions_of(parameters_of(optimizer))

    def begin(
        self, leaves: Iterable[torch.Tensor], trained: Mapping[int, torch.Tensor], *, by_hand: bool
    ) -> None:
        """A pass that is measured: note each gradient that is there already. Old are those of
        `trained` leaves that an update has used, and that nobody has cleared since. An update
        `by_hand` is seen only in a step in full: whether one came before is not known elsewhere."""
        self._before = versions_of(leaves)
        self.graded, self.stale, self.clearing = None, set(), None
        if self._stepped:
            self.stale = {
                key
                for key, version in self._before.items()
                # Who changes them in between, to decay them, means them to be there.
                if self._left.get(key, version) == version
                and key in trained
                and (grad := trained[key].grad) is not None
                and is_zero(grad) is False
            }
        elif by_hand:
            self.stale = None
        self._left = {}

    @property
    def is_measured(self) -> bool:
        """Whether something is known of the last pass."""
        return self.stale is not None or self.graded is not None

    def begin_unmeasured(self) -> None:
        self.stale, self.graded, self.clearing, self._left = None, None, None, {}

    def note_handed_out(self) -> None:
        """The pass has added to none: what the program does with its gradients is not seen."""
        self.stale = None

    def added_to(self, leaves: Iterable[torch.Tensor], frame: FrameType) -> Graded:
        """The leaves whose gradient the pass, which `frame` has asked for, has made or changed."""
        graded = changed_since(self._before, leaves)
        if self.stale:
            stale = [leaf for leaf, _ in graded if id(leaf) in self.stale]
            self.stale = set(map(id, stale))
            self.clearing = clearing_of(frame, stale)
        return graded

    def stale_of(self, leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        stale = self.stale
        return [leaf for leaf in leaves if id(leaf) in stale] if stale else []

    def note_norms(self, norms: Mapping[int, float]) -> None:
        """A gradient of 0 is no other after it was cleared."""
        self.graded = {key for key, norm in norms.items() if norm}

    def end(self) -> None:
        self._stepped = False


def versions_of(leaves: Iterable[torch.Tensor]) -> Versions:
    return {id(leaf): version_of(leaf.grad) for leaf in leaves if leaf.grad is not None}


def changed_since(before: Versions, leaves: Iterable[torch.Tensor]) -> Graded:
    """The leaves that have another gradient since."""
    return [
        (leaf, leaf.grad)
        for leaf in leaves
        if leaf.grad is not None and before.get(id(leaf)) != version_of(leaf.grad)
    ]


def version_of(grad: torch.Tensor) -> tuple[int, int]:
    """What tells whether anybody has changed or replaced it since."""
    return id(grad), grad._version
