"""Sees the program clip its gradients, and whether it does so at a time when it helps."""

import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType
from typing import Any, SupportsFloat

import torch
from torch.nn.utils import clip_grad

from gradscope.dataclass import dataclass
from gradscope.facts import LateClip
from gradscope.record.context import RunContext, shielded
from gradscope.record.optimizers import Work, grads_of, held_by, parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.scaling import Scaling
from gradscope.record.stand_ins import around, is_elsewhere, stand_in, without_us
from gradscope.record.tracing import computes_values

_MOST_KEPT = 16


@dataclass(frozen=True, slots=True)
class Clip:
    """One call. `total` is the norm that it compared with its bound, None where it took none."""

    function: str
    bound: float
    total: torch.Tensor | None
    site: Site


class Clipping:
    """Notes calls of `clip_grad_norm_` and `clip_grad_value_` that come before the gradients are
    there, before they are unscaled, or after the optimizer has used them. `on_clip` is told of each
    call, with the gradients by id."""

    def __init__(self, context: RunContext, on_clip: Callable[[set[int], Clip], None]) -> None:
        self._context = context
        self._on_clip = on_clip
        # Gradients by id: they live from one backward to the next, which is as long as we look.
        self._clipped: dict[int, Clip] = {}
        # The optimizers that have used them, which may go.
        self._updated: list[Callable[[], Any]] = []
        self._waiting: list[tuple[set[int], Clip, Site]] = []  # with the step that came too early
        self._last_update: Site = ()
        # Parameters without gradients that were clipped, by place: backward may come afterwards.
        self._early: dict[object, tuple[set[int], Clip]] = {}
        self._given: set[object] = set()  # the places that were given parameters
        self._steppers: set[int] = set()  # the optimizers, by id
        self._found: dict[object, LateClip] = {}
        self.scaling = Scaling(context)

    def install(self, stack: ExitStack, thread: int) -> None:
        """Put ourselves around what torch itself calls: also seen under names imported before."""
        self.scaling.install(stack, thread)
        owner: Any = clip_grad
        by_norm: Any = getattr(owner, "_clip_grads_with_norm_", None)
        if by_norm is None:  # torch before 2.6
            return
        grouped = owner._group_tensors_by_device_and_dtype
        by_value = owner.clip_grad_value_.__wrapped__.__code__

        def is_seen() -> bool:
            is_ours = not (self._context.coasts or is_elsewhere(thread))
            return is_ours and computes_values()

        def clip(parameters: Any, max_norm: float, total: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(parameters, torch.Tensor):
                parameters = [parameters]
            parameters = list(parameters)  # may be a generator
            can_clip = isinstance(max_norm, SupportsFloat)  # else torch refuses
            if can_clip and is_seen():
                site = note_site(sys._getframe(1))[0]
                with shielded(self._context):
                    found = Clip("clip_grad_norm_", float(max_norm), total, site)
                    grads = grads_of(parameters)
                    self._clips(grads, found)
                    self._clips_early(parameters, grads, found)
            with without_us:
                by_norm(parameters, max_norm, total, *args, **kwargs)

        def group(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            if caller.f_code is by_value and is_seen():
                with shielded(self._context):
                    bound = float(caller.f_locals["clip_value"])
                    found = Clip("clip_grad_value_", bound, None, note_site(caller)[0])
                    self._clips(tensors[0], found)
            return grouped(tensors, *args, **kwargs)

        def unscaling(frame: FrameType, scaler: Any, optimizer: Any) -> None:
            has_groups = hasattr(optimizer, "param_groups")  # else torch refuses
            if has_groups and scaler.is_enabled() and is_seen():
                self.scaling.note_undone(optimizer)
                with shielded(self._context):
                    self._unscales(optimizer, scaler, note_site(frame)[0])

        stand_in(stack, owner, "_clip_grads_with_norm_", clip)
        stand_in(stack, owner, "_group_tensors_by_device_and_dtype", group)
        around(stack, thread, torch.amp.GradScaler, "unscale_", before=unscaling)

    def begin_backward(self, one: BackwardPass) -> None:
        self.forget()
        self.scaling.begin_backward(one)

    def forget(self) -> None:
        """There are new gradients, which may have the ids of those before."""
        self._settle()
        self._clipped, self._updated = {}, []

    def end_update(self, work: Work) -> None:
        """Gradients that were clipped after one update and used by the next are in time: who
        writes them without a backward does so."""
        self.scaling.end_update(work)
        self._updated.append(weakref.ref(work.optimizer))
        self._last_update = work.site
        self._steppers.add(id(work.optimizer))
        if not (self._early or self._waiting):
            return
        updated = _graded(work.optimizer)
        if self._early and updated:
            self._settle_early(work.optimizer, updated)
        self._waiting = [one for one in self._waiting if not one[0] & updated]

    def note_early(self, clip: Clip, update: Site) -> None:
        """One that came after each pass, of several that the update has used."""
        self._note("between-passes", clip, update, 1.0)

    def facts(self) -> tuple[LateClip, ...]:
        self._settle()
        return tuple(self._found.values())

    def _settle(self) -> None:
        for _, clip, update in self._waiting:
            self._note("after-step", clip, update, 1.0)
        self._waiting = []

    def _clips(self, grads: Iterable[torch.Tensor], clip: Clip) -> None:
        clipped = set(map(id, grads))
        updated = (one for one in (held() for held in self._updated) if one is not None)
        if clipped and clipped <= set().union(*map(_graded, updated)):
            self._waiting.append((clipped, clip, self._last_update))
        self._clipped |= dict.fromkeys(clipped, clip)
        self._on_clip(clipped, clip)

    def _clips_early(
        self, parameters: list[torch.Tensor], grads: list[torch.Tensor], clip: Clip
    ) -> None:
        key = tuple((id(code), at) for code, at in clip.site)  # code is slow to hash
        self._early.pop(key, None)
        self._given |= {key} if parameters else set()
        if not grads:
            self._early[key] = (set(map(id, parameters)), clip)

    def _settle_early(self, optimizer: Any, updated: set[int]) -> None:
        """What was clipped before backward was updated as backward left it; and what no clipping
        was given."""
        held = held_by(optimizer)
        for key, (parameters, clip) in list(self._early.items()):
            # Where there are several, what one place is given may be of another one's turn.
            is_its = not parameters and (key not in self._given or len(self._steppers) == 1)
            if is_its or parameters & held:
                del self._early[key]
                if not updated & self._clipped.keys():
                    norms = [grad.norm() for grad in grads_of(parameters_of(optimizer))]
                    seen = replace(clip, total=torch.stack(norms).norm())
                    order = "before-backward" if parameters else "of-nothing"
                    self._note(order, seen, self._last_update, 1.0)

    def _unscales(self, optimizer: Any, scaler: Any, site: Site) -> None:
        for grad in grads_of(parameters_of(optimizer)):
            clip = self._clipped.pop(id(grad), None)
            if clip is not None:
                self._note("before-unscale", clip, site, float(scaler.get_scale()))

    def _note(self, order: str, clip: Clip, other: Site, scale: float) -> None:
        """One fact for each call in the source: of the first step where it did anything. A helper
        that clips is told where the function calls it that calls the other too."""
        place = place_of(_parted(clip.site, other))
        before = self._found.get((order, place))
        if before is not None and before.acts:
            return
        total = float(clip.total.item()) if clip.total is not None else None
        step = max(self._context.step - 1, 0)
        where = place, place_of(_parted(other, clip.site))
        late = LateClip(step, order, clip.function, clip.bound, total, scale, *where)
        if before is None and len(self._found) < _MOST_KEPT:
            self._found[order, place] = late
        elif before is not None and late.acts:
            self._found[order, place] = replace(late, step=before.step)


def _parted(site: Site, other: Site) -> Site:
    """A site from the innermost function on that another one has come through as well."""
    codes = {id(code) for code, _ in other}
    both = (at for at, (code, _) in enumerate(site) if id(code) in codes)
    return site[next(both, 0) :]


def _graded(optimizer: Any) -> set[int]:
    """The gradients of what it holds, by id."""
    return set(map(id, grads_of(parameters_of(optimizer))))
