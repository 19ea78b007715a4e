"""Sees the program clip its gradients, and whether it does so at a time when it helps."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch.nn.utils import clip_grad

from gradscope.facts import LateClip, Location
from gradscope.record.sites import note_site, resolve

_MOST_KEPT = 16


class Clipping:
    """Notes calls of `clip_grad_norm_` that come before the gradients are unscaled, or after the
    optimizer has used them. `step` tells the step that runs."""

    def __init__(self, step: Callable[[], int]) -> None:
        self._step = step
        self._clipped: dict[int, tuple[float, Location | None]] = {}  # by id of the parameter
        self._used: set[int] = set()  # parameters that were updated since the last backward
        self._waiting: list[tuple[set[int], float, Location | None]] = []
        self._found: dict[object, LateClip] = {}

    def install(self, stack: ExitStack, thread: int) -> None:
        """Put ourselves around what torch itself calls: also seen under names imported before."""
        inner: Any = getattr(clip_grad, "_clip_grads_with_norm_", None)
        scaler: Any = torch.amp.GradScaler
        unscale = scaler.unscale_
        if inner is None:  # torch before 2.6
            return

        def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> None:
            if isinstance(parameters, torch.Tensor):
                parameters = [parameters]
            parameters = list(parameters)  # may be a generator
            if threading.get_ident() == thread:
                self._clips(parameters, float(max_norm), sys._getframe(1))
            inner(parameters, max_norm, *args, **kwargs)

        def unscale_(one: Any, optimizer: Any) -> None:
            if threading.get_ident() == thread and one.is_enabled():
                self._unscales(optimizer)
            unscale(one, optimizer)

        stack.callback(setattr, clip_grad, "_clip_grads_with_norm_", inner)
        stack.callback(setattr, scaler, "unscale_", unscale)
        clip_grad._clip_grads_with_norm_ = clip
        scaler.unscale_ = unscale_

    def begin_backward(self) -> None:
        self._settle()
        self._clipped, self._used = {}, set()

    def end_update(self, optimizer: Any) -> None:
        """Gradients that were clipped after one update and used by the next are in time: who
        writes them without a backward does so."""
        updated = set(_ids(optimizer))
        self._used |= updated
        self._waiting = [one for one in self._waiting if not one[0] & updated]

    def facts(self) -> tuple[LateClip, ...]:
        self._settle()
        return tuple(self._found.values())

    def _settle(self) -> None:
        for _, max_norm, place in self._waiting:
            self._note("after-step", max_norm, place)
        self._waiting = []

    def _clips(self, parameters: Iterable[torch.Tensor], max_norm: float, frame: Any) -> None:
        user, _ = note_site(frame)
        place = resolve(*user[0]) if user else None
        clipped = {id(parameter) for parameter in parameters if parameter.grad is not None}
        if clipped and clipped <= self._used:
            self._waiting.append((clipped, max_norm, place))
        self._clipped |= dict.fromkeys(clipped, (max_norm, place))

    def _unscales(self, optimizer: Any) -> None:
        for key in _ids(optimizer):
            if key in self._clipped:
                self._note("before-unscale", *self._clipped.pop(key))

    def _note(self, order: str, max_norm: float, place: Location | None) -> None:
        if len(self._found) < _MOST_KEPT:
            self._found.setdefault((order, place), LateClip(self._step(), order, max_norm, place))


def _ids(optimizer: Any) -> list[int]:
    return [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
