"""What optimizers, or the program by hand, did to parameters: which, at what rate, from where."""

from collections.abc import Iterable
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.facts import Location, Update
from gradscope.record.finite import is_zero
from gradscope.record.optimizers import (
    Work,
    held_by,
    is_blind_to_scale,
    own_step,
    parameters_of,
)
from gradscope.record.sites import note_site, place_of
from gradscope.record.sizes.clearing import Freshness, clearing_of
from gradscope.record.sizes.leaves import Leaves, Replacement
from gradscope.source import parsed
from gradscope.source.hand_updates import ascent, rate_by_hand

Kept = list[tuple[int, Update]]  # by the step: that of the update is of the first such
_Written = tuple[float | None, int | None]  # the rate, and the line that adds the gradient
_COMPARED = ("lr", "initial_lr")
_MOST_KEPT = 512  # updates; of those that follow only the last
_GRADCHECK = torch.autograd.gradcheck.__code__.co_filename
_LOOKED_AT = 8  # updates of each optimizer whose parameters are gone through one by one


class Updates:
    """Collects the updates. `trained` are the parameters that an optimizer holds, by id; `given`
    those that had a gradient when it came, whoever put it there; `held` are those of optimizers."""

    def __init__(self, leaves: Leaves) -> None:
        self.trained: dict[int, torch.Tensor] = {}
        self._written: set[int] = set()  # of them, those that the program has written by hand
        self.given: set[int] = set()
        self.held: set[int] = set()
        self._leaves = leaves
        self._updates: Kept = []
        self._by_hand: Kept = []
        self._same: dict[int, tuple[tuple[Any, ...], Update]] = {}  # the last, and what tells it
        self._looked: dict[int, int] = {}  # by id of the optimizer
        self._holds: dict[int, set[int]] = {}  # likewise, once something was replaced
        self._kinds: dict[type, None] = {}  # the classes of optimizers
        self._made: dict[int, Location | None] = {}  # likewise

    def note_made(self, optimizer: Any, frame: FrameType) -> None:
        self._same.pop(id(optimizer), None)
        self._made[id(optimizer)] = place_of(note_site(frame)[0])

    def note(self, step: int, work: Work, fresh: Freshness, clipped: float | None) -> None:
        optimizer = work.optimizer
        settings = optimizer.param_groups[0]
        looked = self._looked.get(id(optimizer), 0)
        is_plain = looked >= _LOOKED_AT and not (fresh.is_measured or clipped is not None)
        compared = (*map(settings.get, _COMPARED), work.site)
        if is_plain and not self._leaves.successions and type(settings.get("lr")) is float:
            same = self._same.get(id(optimizer))
            if same is not None and same[0] == compared:
                _keep(self._updates, step, same[1])
                return
        self._looked[id(optimizer)] = looked + 1
        if looked < _LOOKED_AT or clipped is not None:
            self.look(optimizer, work.frame)
        if self._leaves.successions:
            self._holds[id(optimizer)] = held_by(optimizer)
            self._note_successions(step, id(optimizer))
        kind = type(optimizer)
        self._kinds[kind] = None
        stale = fresh.stale_of(parameters_of(optimizer))
        base = settings.get("initial_lr")
        clearing = None
        if stale:
            clearing = fresh.clearing or clearing_of(work.frame, stale, after=True)
        update = Update(
            step=step,
            optimizer=kind.__name__,
            lr=float(settings.get("lr", 0.0)),
            location=place_of(work.site),
            made=self._made.get(id(optimizer)),
            stale=None if fresh.stale is None else bool(stale),
            cleared=None if fresh.graded is None else _is_cleared(optimizer, fresh.graded),
            clipped=clipped,
            base_lr=float(base) if base is not None else None,
            clearing=clearing,
            blind_to_scale=is_blind_to_scale(kind),
        )
        if is_plain:
            self._same[id(optimizer)] = compared, update
        _keep(self._updates, step, update)

    def note_coasted(self, updates: Iterable[tuple[int, int]]) -> None:
        """These were not looked at: the step, and the optimizer by id. They were as its last."""
        for step, optimizer in updates:
            self._note_successions(step, optimizer)
            if optimizer in self._same:
                _keep(self._updates, step, self._same[optimizer][1])

    def _note_successions(self, step: int, optimizer: int) -> None:
        for one in self._leaves.successions.values() if optimizer in self._holds else ():
            one.note_update(step, self._holds[optimizer])

    def note_by_hand(self, step: int, leaf: torch.Tensor, fresh: Freshness, frame: Any) -> None:
        """The first leaf is written without an optimizer."""
        self.train_by_hand(leaf, frame)
        user, _ = note_site(frame)
        known = None if fresh.stale is None else bool(fresh.stale_of([leaf]))
        update = Update(
            step, "", None, place_of(user), stale=known, clearing=fresh.clearing if known else None
        )
        _keep(self._by_hand, step, update)

    def train_by_hand(self, leaf: torch.Tensor, frame: Any) -> None:
        """A leaf is written, the first or another one of an update. Beside optimizers that is none:
        weights are clipped, or averaged."""
        if not self._updates and id(leaf) not in self.trained:
            self._written.add(id(leaf))
            self._train(leaf, frame)

    def note_replaced(self, step: int, leaf: torch.Tensor, found: Replacement) -> None:
        """A leaf has new values, or is a new tensor, that was computed from the old one."""
        watched = self._leaves.settle(leaf, found)
        if watched is not None:
            watched.trained = True
            _keep(self._by_hand, step, Update(step, "", None, place_of(found.user)))

    @property
    def are_by_hand(self) -> bool:
        """Whether the program has written its parameters without an optimizer."""
        return bool(self._by_hand) and not self._updates

    def note_backward_within(self) -> None:
        """The last update runs a backward of its own: what was cleared before is not missed."""
        if self._updates and self._updates[-1][1].cleared:
            step, update = self._updates[-1]
            self._updates[-1] = step, replace(update, cleared=False)

    def facts(self) -> tuple[Update, ...]:
        """Those of the optimizers. Beside them, what else writes parameters is no update: it
        clips them, or averages them."""
        written: dict[object, _Written] = {}
        kept = self._updates or self._by_hand
        updates = (one if one.step == step else replace(one, step=step) for step, one in kept)
        return tuple(self._as_written(one, written) for one in updates)

    def _as_written(self, update: Update, known: dict[object, _Written]) -> Update:
        """With what the source alone tells: the rate of an update by hand, and which way an update
        goes that is the program's own."""
        steps = (own_step(kind) for kind in self._kinds if kind.__name__ == update.optimizer)
        own = next(filter(None, steps), None)
        place = update.location
        if place is None or (update.optimizer and own is None):
            return update
        key = (update.optimizer, place)
        if key not in known:
            known[key] = _read(update.optimizer, place, own)
        rate, ascends = known[key]
        return replace(update, lr=update.lr if update.optimizer else rate, ascends=ascends)

    def look(self, optimizer: Any, frame: Any) -> None:
        """It steps, or was to: what it holds is to be trained, and nothing that was written by hand
        before, as an attack on the input is."""
        for key in self._written:
            self._leaves.meet(self.trained.pop(key), frame).trained = False
        self._written.clear()
        for parameter in parameters_of(optimizer):
            self.held.add(id(parameter))
            if parameter.grad is not None:
                self.given.add(id(parameter))
            if parameter.requires_grad and id(parameter) not in self.trained:
                self._train(parameter, frame)

    def _train(self, leaf: torch.Tensor, frame: Any) -> None:
        self.trained[id(leaf)] = leaf
        self._leaves.meet(leaf, frame).trained = True


def _keep(updates: Kept, step: int, update: Update) -> None:
    """The first ones, and the last."""
    if len(updates) >= _MOST_KEPT:
        updates.pop()
    updates.append((step, update))


def _read(optimizer: str, place: Location, own: CodeType | None) -> _Written:
    """`own` is the `step` of an optimizer class that the program defines."""
    text = parsed(own.co_filename if own is not None else place.file)
    if text is None:
        return None, None
    rate: Any = rate_by_hand(text, place) if own is None else None
    rising = ascent(text, place, optimizer)
    lr = float(rate.value) if rate is not None else None
    return lr, rising.lineno if rising is not None else None


def _is_cleared(optimizer: Any, graded: set[int]) -> bool:
    """Whether nothing is left of the gradients that the last backward gave what it holds."""
    held = [parameter for parameter in parameters_of(optimizer) if id(parameter) in graded]
    return bool(held) and all(one.grad is None or is_zero(one.grad) for one in held)


def is_probe(frame: Any) -> bool:
    """Whether gradcheck writes there, which moves a value by little, and back."""
    _, inner = note_site(frame)
    return any(code.co_filename == _GRADCHECK for code, _ in inner)
