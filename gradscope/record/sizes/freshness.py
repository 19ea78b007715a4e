"""Which gradients a backward pass made or added to, and which of those it added to were old."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

import torch

from gradscope.facts import Clearing
from gradscope.record.finite import is_zero
from gradscope.record.optimizers import parameters_of
from gradscope.record.passes import Graded
from gradscope.record.sizes.clearing import before_backward

Versions = dict[int, tuple[int, int]]  # leaf -> its gradient and the version of that, by id


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
        self._left |= _versions(parameters_of(optimizer))

    def begin(
        self,
        leaves: Iterable[torch.Tensor],
        trained: Mapping[int, torch.Tensor],
        *,
        by_hand: bool,
    ) -> None:
        """A pass that is measured: note each gradient that is there already. Old are those of
        `trained` leaves that an update has used, and that nobody has cleared since. An update
        `by_hand` is seen only in a step in full: whether one came before is not known elsewhere."""
        self._before = _versions(leaves)
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

    def begin_unmeasured(self) -> None:
        self.stale, self.graded, self.clearing, self._left = None, None, None, {}

    def added_to(self, leaves: Iterable[torch.Tensor], frame: FrameType) -> Graded:
        """The leaves whose gradient the pass, which `frame` has asked for, has made or changed."""
        graded = [
            (leaf, leaf.grad)
            for leaf in leaves
            if leaf.grad is not None and self._before.get(id(leaf)) != version_of(leaf.grad)
        ]
        if self.stale:
            stale = [leaf for leaf, _ in graded if id(leaf) in self.stale]
            self.stale = set(map(id, stale))
            self.clearing = before_backward(frame, stale)
        return graded

    def stale_of(self, leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        stale = self.stale
        return [leaf for leaf in leaves if id(leaf) in stale] if stale else []

    def note_norms(self, norms: Mapping[int, float]) -> None:
        """A gradient of 0 is no other after it was cleared."""
        self.graded = {key for key, norm in norms.items() if norm}

    def end(self) -> None:
        self._stepped = False


def _versions(leaves: Iterable[torch.Tensor]) -> Versions:
    return {id(leaf): version_of(leaf.grad) for leaf in leaves if leaf.grad is not None}


def version_of(grad: torch.Tensor) -> tuple[int, int]:
    """What tells whether anybody has changed or replaced it since."""
    return id(grad), grad._version
