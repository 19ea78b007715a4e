"""When the last step of a run is over: once every optimizer has taken its gradients."""

from __future__ import annotations

import gc
from typing import Any

import torch

from gradscope.record.optimizers import parameters_of


class LastUpdate:
    """Follows the optimizers from the last backward on; of a run that goes on, only who stepped."""

    def __init__(self, is_asked: bool) -> None:
        self._is_asked = is_asked
        self._stepped: set[int] = set()  # since the backward began, by id
        self._awaited: set[int] | None = None

    def begin_backward(self) -> None:
        self._stepped.clear()

    def is_over_after_backward(self, updates_by_hand: bool) -> bool:
        """The last backward is done: whether no update follows. Of one by hand nobody knows where
        it ends."""
        if not self._is_asked or self._awaited is not None:
            return False
        living = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
        given = {id(one) for one in living if any(p.grad is not None for p in parameters_of(one))}
        self._awaited = (given or set(map(id, living))) - self._stepped
        return not self._awaited and not updates_by_hand

    def is_over_after(self, optimizer: Any) -> bool:
        self._stepped.add(id(optimizer))
        if self._awaited is None or id(optimizer) not in self._awaited:
            return False
        self._awaited.remove(id(optimizer))
        return not self._awaited
