"""What each optimizer does with the gradients that backward passes give to what it holds.

Seen at the calls alone: of a pass, of a step, of `zero_grad`. Of the gradients only one of each
optimizer is asked, whether it is another one than before.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch.optim import lr_scheduler

from gradscope.facts import NotChecked, Schedule, Usage
from gradscope.ops.traits import Trait, has
from gradscope.record import sites
from gradscope.record.context import RunContext, shielded
from gradscope.record.graph import leaf_ids
from gradscope.record.optimizers import Work, grads_of, outside_of, parameters_of, rate_of
from gradscope.record.passes import BackwardPass, Measure, Passed
from gradscope.record.schedule import is_chosen
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site
from gradscope.record.sizes.account import SAMPLE, Account, places_in
from gradscope.record.sizes.clipping import Clip
from gradscope.record.sizes.crossings import Crossing
from gradscope.record.sizes.leaves import Leaves, Watched, has_memory
from gradscope.record.sizes.movements import begin_movement, end_movement, overflow_in, overflow_of
from gradscope.record.sizes.reduction import Factor, factor_of_mean
from gradscope.record.sizes.sights import sights_from
from gradscope.record.stand_ins import around, is_elsewhere, stand_in

_MOST = 16  # optimizers: an inner loop makes them by the thousand
_LEFT_OUT = NotChecked(
    "what becomes of the steps of further optimizers", f"{_MOST} are followed, the first ones"
)
_SCALES = Trait.MULTIPLIES | Trait.DIVIDES
# What torch itself does to gradients on the program's behalf is no use of them. By its own files:
# not all of it stands behind a call that could be watched.
_UPKEEP = ("nn/utils/clip_grad.py", "amp/grad_scaler.py", "optim/", "nn/modules/module.py")
_MOST_TOLD = 32  # values, until a schedule lowers the rate; places where one is made
_OF_OTHERS = (lr_scheduler.SequentialLR, lr_scheduler.ChainedScheduler)  # schedules
# Each has its own `__init__`.
_SCHEDULES = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau, *_OF_OTHERS)
_SCHEDULERS = "optim/lr_scheduler.py"


class Usages:
    """A part of the sizes."""

    def __init__(self, leaves: Leaves, context: RunContext, measure: Measure | None) -> None:
        self._leaves = leaves
        self._context = context
        self._measure = measure
        self.on_bad_unscaled: Callable[[Any], None] = lambda optimizer: None
        self.on_early_clip: Callable[[Clip, Site], None] = lambda clip, site: None
        self._accounts: dict[int, Account] = {}
        self._gone: list[Account] = []
        self.not_checked: tuple[NotChecked, ...] = ()
        self._stepping: set[int] = set()  # optimizers that do, their closures included
        self._grads: dict[int, Watched] = {}  # whose gradient the last pass left at an address
        self._factor: Factor | None = None  # of the pass that runs
        self._is_aside = False  # it comes after others, and is also for what no optimizer holds
        self._graph: Sequence[Crossing] | None = None  # of the pass that runs
        self._handled = False
        self.wants_look = False  # somebody waits for the graph of a pass
        self._scaled: tuple[float, Site] = (1.0, ())  # what it was first multiplied by, by hand

    def install(self, stack: ExitStack, thread: int) -> None:
        """Put ourselves around what clears gradients, sets rates, and skips steps."""
        clearing: tuple[Any, ...] = (torch.optim.Optimizer, torch.nn.Module)
        for owner in clearing:
            stand_in(stack, owner, "zero_grad", self._clearing(owner.zero_grad, thread))
        watch = partial(around, stack, thread, within=partial(shielded, self._context))
        watch(torch.amp.GradScaler, "step", after=self._after_asking)
        for kind in _SCHEDULES:
            watch(kind, "__init__", after=self._after_scheduling)
            watch(kind, "step", after=self._after_moving)

    def _clearing(self, original: Any, thread: int) -> Callable[..., Any]:
        def zero_grad(one: Any, *args: Any, **kwargs: Any) -> Any:
            if self._context.coasts or is_elsewhere(thread):
                return original(one, *args, **kwargs)
            waiting = [each for each in self._accounts.values() if each.piled]
            with shielded(self._context):
                for account in waiting:
                    account.look()
            original(one, *args, **kwargs)
            with shielded(self._context):
                for account in waiting:
                    if account.is_changed():
                        account.note_cleared(sites.user_site(sys._getframe(1)))
            return None

        return zero_grad

    # Told by the observation

    def begin_pass(self, one: BackwardPass) -> None:
        """One that adds gradients to leaves is about to run."""
        self._graph, self._factor, self._is_aside = None, None, False
        with shielded(self._context):
            for account in self._open:
                account.look()
            if self._accounts and self._context.step < SAMPLE:
                given = one.args[0] if one.args else ()
                self._factor = factor_of_mean(one.outputs, given, self._context)
                # What is cleared with it is asked of what earlier passes have left alone.
                if any(account.pending for account in self._open):
                    self._context.seen.hold(one.roots, list(one.above))
                    self._is_aside = not leaf_ids(one.above) <= self._held

    def end_pass(self) -> None:
        self.wants_look = False
        with shielded(self._context):
            for account in self._open:
                if account.is_changed():
                    step = self._context.step
                    in_use = bool(self._stepping)
                    account.note_pass(step, self._factor, in_use=in_use, aside=self._is_aside)
                    if self._graph is not None:
                        account.fading.note_graph(step, self._graph)
                self.wants_look |= account.fading.wants_look

    @property
    def stepped(self) -> set[int]:
        """The optimizers that have, by id."""
        return {key for key, one in self._accounts.items() if one.updates}

    @property
    def calm_updates(self) -> float:
        """The coming ones of any optimizer that nobody needs to look at."""
        return min((one.calm_updates for one in self._open), default=math.inf)

    def note_coasted(self, passed: Passed) -> None:
        """So many passes and updates were not looked at."""
        step = self._context.step
        updates = Counter(optimizer for _, optimizer in passed.updates)
        for key, account in self._accounts.items():
            if updates[key]:
                account.note_coasted(passed.passes, updates[key], step)

    def account_of(self, parameter: Any) -> Account | None:
        """That of the first optimizer that holds it."""
        return next((one for one in self._open if id(parameter) in one.held), None)

    @property
    def _open(self) -> list[Account]:
        return [one for one in self._accounts.values() if one.optimizer() is not None]

    @property
    def _held(self) -> set[int]:
        return {key for one in self._open for key in one.held}

    def optimizer_made(self, optimizer: Any, frame: FrameType) -> None:
        account = self._meet(optimizer, sites.note_site(frame)[0])
        if account is not None and self._context.is_between:
            with shielded(self._context):
                account.sights = sights_from(frame)

    def optimizer_begins(self, work: Work) -> None:
        self._stepping.add(id(work.optimizer))
        account = self._accounts.get(id(work.optimizer))
        step = self._context.step
        if account is None or not work.updates or not step or not self._context.is_between:
            return
        count = account.updates + 1
        if not account.fading.due_in(count):
            with shielded(self._context):
                grads = grads_of(parameters_of(work.optimizer))
                account.fading.note_update(step - 1, grads)
                self.wants_look |= account.fading.wants_look
        if is_chosen(count) and account.is_stock:
            with shielded(self._context):
                account.before = begin_movement(work.optimizer, clipped=bool(account.clips))

    def optimizer_ends(self, work: Work) -> None:
        step = self._context.step
        if not work.over:
            return
        self._stepping.discard(id(work.optimizer))
        if not step or not self._context.is_between:
            return
        account = self._meet(work.optimizer, ())
        if account is None:
            return
        if (clip := account.early_clip()) is not None:
            self.on_early_clip(clip, work.site)
        rate, clips = rate_of(work.optimizer), [clip for _, clip in account.clips]
        account.note_update(step - 1, work.site, rate)
        if is_chosen(account.updates) and account.is_stock and account.overflow is None:
            with shielded(self._context):
                account.overflow = overflow_of(clips, work.optimizer, step - 1) or overflow_in(
                    work.optimizer, step - 1, self._leaves.names
                )
        if account.before is not None:
            before, account.before = account.before, None
            with shielded(self._context):
                found = end_movement(before, step - 1, rate or 0.0, clips, self._leaves.names)
                account.movements += [found] if found is not None else []

    # Told by what is put around torch

    def _after_asking(
        self, frame: FrameType, _: Any, scaler: Any, optimizer: Any, *more: Any, **named: Any
    ) -> None:
        account = self._meet(optimizer, ())
        if account is not None and scaler.is_enabled() and not self._context.coasts:
            # Only a step that was skipped leaves them unused: a compiled one is not seen.
            found = scaler._found_inf_per_device(optimizer).values()
            skipped = account.pending > 0 and any(bool(one) for one in found)
            account.note_asked(scaler, skipped, sites.note_site(frame)[0])
            if skipped and scaler.get_scale() <= 1:  # which makes no gradient inf
                self.on_bad_unscaled(optimizer)

    def _after_scheduling(
        self, frame: FrameType, _: Any, scheduler: Any, /, *more: Any, **named: Any
    ) -> None:
        account = self._meet(scheduler.optimizer, ())
        made = sites.place_of(sites.note_site(outside_of(scheduler, frame))[0])
        if account is not None and made is not None and len(account.scheduled_at) < _MOST_TOLD:
            account.scheduled_at.append(made)
        if account is not None and not isinstance(scheduler, _OF_OTHERS):
            gamma = getattr(scheduler, "gamma", None)
            gamma = float(gamma) if isinstance(gamma, int | float) else None
            schedule = Schedule(type(scheduler).__name__, made, gamma=gamma)
            if isinstance(scheduler, lr_scheduler.LambdaLR):
                base = max(map(float, scheduler.base_lrs))
                code = getattr(scheduler.lr_lambdas[0], "__code__", None)
                *_, given_by = (None, *places_in(code))
                schedule = replace(schedule, base=base, given_by=given_by)
            elif isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                schedule = replace(schedule, rises=scheduler.mode == "max")
            account.schedule = schedule

    def _after_moving(
        self,
        frame: FrameType,
        _: Any,
        scheduler: Any,
        metrics: Any = None,
        *more: Any,
        **named: Any,
    ) -> None:
        account = self._accounts.get(id(getattr(scheduler, "optimizer", None)))
        if account is None or (known := account.schedule) is None:
            return
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            known = self._after_telling(known, scheduler, float(metrics))
        if sites.file_in_torch(frame.f_code) != _SCHEDULERS:  # it moves the ones that it is made of
            moves, place = account.moves.get(id(scheduler), (0, None))
            place = place or sites.place_of(sites.note_site(frame)[0])
            account.moves[id(scheduler)] = moves + 1, place
            if moves >= known.moves:
                known = replace(known, moved_at=place, moves=moves + 1)
        account.schedule = known

    def _after_telling(self, known: Schedule, scheduler: Any, value: float) -> Schedule:
        if known.lowered_at is None and len(known.values) < _MOST_TOLD:
            # It begins to count bad ones anew where it lowers the rate, and where one is better.
            has_lowered = not scheduler.num_bad_epochs and scheduler.best != value
            at = self._context.step if has_lowered else None
            known = replace(known, values=(*known.values, value), lowered_at=at)
        return replace(known, latest=value)

    # Told by the sizes and by the recorder

    def note_graph(self, crossings: Sequence[Crossing]) -> None:
        self._graph = crossings

    def note_clip(self, grads: set[int], clip: Clip) -> None:
        if self._measure is not None:
            with shielded(self._context):
                self._measure.note_clip(clip.bound, clip.total)
        for account in self._accounts.values():
            account.note_clip(grads, clip)

    def note_gradients(self) -> None:
        """A pass was measured: the leaves have their gradients. That of an input is no optimizer's
        business."""
        self._grads, held = {}, self._held
        for watched in self._leaves.watched.values():
            leaf = watched.ref()
            grad = _grad_of(leaf)
            is_trained = id(leaf) in held or isinstance(leaf, torch.nn.Parameter)
            if grad is not None and (is_trained or not held):
                self._grads[grad.data_ptr()] = watched

    def note_operands(self, info: OpInfo, operands: Any, result: Any) -> None:
        """An op was called outside of backward and of optimizers, by who has called the caller. One
        that makes as much of a gradient, or writes into it, makes use of it; a norm does not."""
        grads = self._grads
        if self._handled or not grads:
            return
        for one in operands[:2]:
            if isinstance(one, list | tuple):
                one = _first(one)
            if not has_memory(one) or one.data_ptr() not in grads:
                continue
            grad, frame = _grad_of(grads[one.data_ptr()].ref()), sys._getframe(2)
            if grad is None or grad.data_ptr() != one.data_ptr():
                continue
            made = _first(result)
            is_view = has_memory(made) and made.data_ptr() == one.data_ptr() and made is not one
            is_less = has_memory(made) and made.numel() < max(2, one.numel())
            if not (is_view or is_less or _is_upkeep(frame)):
                self._handled = True
                number = operands[1] if len(operands) > 1 else None
                if isinstance(number, int | float) and has(info.name, _SCALES):
                    factor = 1 / number if has(info.name, Trait.DIVIDES) and number else number
                    self._scaled = float(factor), sites.note_site(frame)[0]

    # The end

    @property
    def files(self) -> set[str]:
        """Where optimizers were made, or step."""
        sites_of = (site for one in self._accounts.values() for site in (one.made, one.steps_at))
        return {code.co_filename for site in sites_of for code, _ in site}

    def facts(self) -> tuple[Usage, ...]:
        accounts = (*self._gone, *self._accounts.values())
        return tuple(
            one.fact(self._leaves, handled=self._handled, scaled=self._scaled) for one in accounts
        )

    def made_at(self, optimizer: Any) -> Site:
        """Where the program made an optimizer; empty where nobody saw it."""
        account = self._meet(optimizer, ())
        return account.made if account is not None else ()

    def _meet(self, optimizer: Any, made: Site) -> Account | None:
        known = self._accounts.get(id(optimizer))
        if known is not None and known.optimizer() is optimizer:
            return known
        if not hasattr(optimizer, "param_groups"):
            return None
        if len(self._accounts) + len(self._gone) >= _MOST:
            self.not_checked = (_LEFT_OUT,)
            return None
        if known is not None:
            self._gone.append(known)
        self._accounts[id(optimizer)] = Account(optimizer, made)
        return self._accounts[id(optimizer)]


def _is_upkeep(frame: Any) -> bool:
    """Whether torch has called the op for its own purposes."""
    while frame is not None and sites.kind_of(frame.f_code) != sites.USER:
        if sites.file_in_torch(frame.f_code).startswith(_UPKEEP):
            return True
        frame = frame.f_back
    return False


def _first(one: Any) -> Any:
    return one[0] if isinstance(one, list | tuple) and one else one


def _grad_of(leaf: torch.Tensor | None) -> torch.Tensor | None:
    grad = leaf.grad if leaf is not None else None
    return grad if grad is not None and has_memory(grad) else None
