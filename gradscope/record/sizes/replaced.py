"""Leaves that a program replaces where others write them: `w.data = w.data - lr * w.grad`, or
`w = (w - lr * grad).detach().requires_grad_()`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.record.sites import Site


class Replacement(NamedTuple):
    """`name` is that of the leaf whose values went in, `user` where the new ones were computed."""

    storage: StorageWeakRef
    name: str
    user: Site


class Replaced:
    """What was computed from a leaf in its own shape, and may turn up in the leaf's place.

    Known by the memory it is in, which no other tensor can get while we refer to it; the memory
    itself is let go with the program's last tensor in it.
    """

    def __init__(self) -> None:
        self._known: dict[int, Replacement] = {}

    def note(self, name: str, values: torch.Tensor, user: Site) -> None:
        storage = StorageWeakRef(values.untyped_storage())
        self._known[storage.cdata] = Replacement(storage, name, user)

    def of(self, tensor: torch.Tensor) -> Replacement | None:
        """What a tensor, of which there is memory, was computed as."""
        if not self._known:
            return None
        return self._known.get(tensor.untyped_storage()._cdata)

    def forget_dead(self) -> None:
        if self._known:
            self._known = {
                key: one for key, one in self._known.items() if not one.storage.expired()
            }
