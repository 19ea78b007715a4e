"""What is known of the program's data: of which samples a batch of a DataLoader's workers is, and
where one turns bad. Also its warnings, which are shown at its own lines."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import dropwhile
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import dataloader

from gradscope.facts import Kind, Location, Sample
from gradscope.record.context import RunContext
from gradscope.record.dispatch import Unseen
from gradscope.record.finite import holds_bad, plain
from gradscope.record.forking import can_fork, forked
from gradscope.record.sites import OURS, kind_of, kind_of_file, note_site, resolve
from gradscope.record.stand_ins import outward, stand_in, without_us
from gradscope.record.tracing import unobserved

_MOST = 3  # samples that are made again, a run
_PATIENCE = 5.0  # seconds for one

Origin = tuple[str, Location] | None


class Loaders:
    """Knows which samples each batch was asked for, and says of bad values that came in with one
    of which sample they are. `sees_ops` tells whether the step is looked at in full."""

    def __init__(self, context: RunContext, sees_ops: Callable[[], bool]) -> None:
        self._context = context
        self._sees_ops = sees_ops
        self._asked: WeakKeyDictionary[Any, dict[int | None, Any]] = WeakKeyDictionary()
        self._made_again = 0

    def install(self, stack: ExitStack) -> None:
        owner: Any = dataloader._MultiProcessingDataLoaderIter
        ask, process = owner._next_index, owner._process_data

        def _next_index(iterator: Any) -> Any:
            index = ask(iterator)
            self._asked.setdefault(iterator, {})[iterator._send_idx] = index
            return index

        def _process_data(iterator: Any, data: Any, *worker: Any) -> Any:
            with without_us:
                batch = process(iterator, data, *worker)
            number = iterator._rcvd_idx - 1 if getattr(iterator, "_in_order", True) else None
            index = self._asked.get(iterator, {}).pop(number, None)
            if self._sees_ops():
                self._note(batch, iterator._dataset, index, *worker[:1])
            return batch

        stand_in(stack, owner, "_next_index", _next_index)
        stand_in(stack, owner, "_process_data", _process_data)

    def _note(self, batch: Any, dataset: Any, asked: Any, worker: int = -1) -> None:
        for tensor in tree_leaves(batch):
            if not isinstance(tensor, torch.Tensor):
                continue
            with unobserved():
                stain = self._context.provenance.of(tensor)
            raw = self._context.journal.events.get(stain.event) if stain is not None else None
            if raw is not None and raw.fact.kind is Kind.SOURCE and raw.fact.sample is None:
                index = _bad_one(tensor, asked)
                op, location = self._born(dataset, index) or ("", None)
                raw.fact = replace(raw.fact, sample=Sample(index, worker, op, location))

    def _born(self, dataset: Any, index: int | None) -> Origin:
        """Where the values of a sample turn bad, when a copy of this process makes it again."""
        if index is None or not can_fork():
            return None
        self._made_again += 1
        if self._made_again > _MOST:
            return None
        return forked(lambda: _FirstBad().of(dataset, index), _PATIENCE)


def _bad_one(tensor: torch.Tensor, asked: Any) -> int | None:
    """The index of the first sample with bad values; None where its place in the batch says
    nothing of it."""
    with unobserved():
        values = plain(tensor)
        is_listed = isinstance(asked, list) and tensor.ndim > 0 and len(asked) == len(tensor)
        if values is None or not is_listed:
            return None
        found = next((one for one, row in zip(asked, values, strict=False) if holds_bad(row)), None)
    return found if isinstance(found, int) else None


class _FirstBad(Unseen):
    """The first op that makes bad values of good ones, and where it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Origin = None

    def of(self, dataset: Any, index: int) -> Origin:
        with self:
            dataset[index]
        return self.found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.found is None and _any_bad(out) and not _any_bad((args, kwargs)):
            user, _ = note_site(sys._getframe(1))
            if user:
                self.found = func.overloadpacket.__name__, resolve(*user[0])
        return out


def _any_bad(values: Any) -> bool:
    held = (one for one in tree_leaves(values) if isinstance(one, torch.Tensor))
    return any(map(holds_bad, held))


def show_warnings_as_ever(stack: ExitStack) -> None:
    """Until `stack` ends, show the program's warnings at the program's line also where a function
    of ours stands between it and torch."""
    shown: Any = warnings.showwarning

    def showwarning(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        if kind_of_file(filename) == OURS:
            warned = dropwhile(
                lambda one: one.f_code.co_filename != filename, outward(sys._getframe(1))
            )
            frame = next((one for one in warned if kind_of(one.f_code) != OURS), None)
            if frame is not None:
                filename, lineno = frame.f_code.co_filename, frame.f_lineno
        shown(message, category, filename, lineno, *rest)

    warned: Any = warnings.warn

    def warn(
        message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any
    ) -> None:
        if not more and stacklevel > 1:
            stacklevel = _level_with_ours(sys._getframe(1), stacklevel)
        with without_us:
            warned(message, category, stacklevel + 1, source, **more)

    stand_in(stack, warnings, "warn", warn)
    stand_in(stack, warnings, "showwarning", showwarning)


def _level_with_ours(frame: FrameType | None, stacklevel: int) -> int:
    """The frame that a warning of `stacklevel` is about, counted with ours in between."""
    level = 0
    for code in (one.f_code for one in outward(frame)):
        if not stacklevel:
            break
        if "importlib" not in code.co_filename or "_bootstrap" not in code.co_filename:
            level, stacklevel = level + 1, stacklevel - (kind_of(code) != OURS)
    return level + stacklevel
