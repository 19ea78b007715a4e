"""Watches how large gradients are, step by step, without looking at every op.

After each backward one fused pass takes the norms of the leaves' gradients. At a few steps (the
first ones, then ever more rarely, and where the graph has grown) the graph itself is inspected:
which leaves each value depends on, and the norm of the gradient at every node.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch

from gradscope.facts import Magnitudes, Step, Summed
from gradscope.record.absences import Absences
from gradscope.record.clipping import Clipping
from gradscope.record.crossings import Crossings
from gradscope.record.finite import plain
from gradscope.record.flow import Flow
from gradscope.record.growths import Growths
from gradscope.record.journal import ModuleFrame, module_path
from gradscope.record.layers import Layers
from gradscope.record.leaves import Leaves, norms_of
from gradscope.record.modes import lifted_above, mode_count
from gradscope.record.optimizers import watch_optimizers
from gradscope.record.recorder import StopTrace
from gradscope.record.reduction import summed
from gradscope.record.updates import Updates

_MOST_INSPECTED = 16  # graphs looked at because they had grown
_MEASURED_FIRST = 8  # steps
_LEAP = 2.0  # times the loss of the step before
_sequence_nr = torch._C._autograd._get_sequence_nr


class Measure(Protocol):
    """What a command measures on top. Called with no mode active and without grad."""

    def after_backward(
        self,
        step: int,
        leaves: Sequence[torch.Tensor],
        name: Callable[[torch.Tensor], str],
        inspected: bool,
    ) -> None: ...

    def after_update(
        self, leaves: Sequence[torch.Tensor], name: Callable[[torch.Tensor], str]
    ) -> None: ...

    def facts(self) -> object: ...


class MagnitudeWatch:
    """Context manager; enter it inside a `Recorder` if there is one.

    `modules` tells the running module, None makes the watch keep track of it itself. Gradients
    are read and never written. `measure` is told of each backward and each update. With `limit`
    the program is ended, as a recorder does, when that many backward passes are done. A fault of
    ours costs a measurement and not the program; it is in `notes`.
    """

    def __init__(
        self,
        modules: Callable[[], ModuleFrame | None] | None = None,
        measure: Measure | None = None,
        *,
        limit: int | None = None,
        on_step: Callable[[int], None] = lambda step: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.modules = modules
        self.measure = measure
        self.limit = limit
        self.on_step = on_step
        self.on_stop = on_stop
        self.step = 0
        self.layers = Layers()
        self.absences = Absences(self.layers)
        self.leaves = Leaves(self.layers)
        self.losses: list[float | None] = []
        self._module: ModuleFrame | None = None
        self._flow: Flow | None = None
        self._growths = Growths()
        self._updates = Updates(self.leaves)
        self._clipping = Clipping(lambda: max(self.step - 1, 0))
        self._summed: Summed | None = None
        self._inspected: list[int] = []
        self._largest = 0  # nodes made for the largest graph that was inspected
        self._made_until = 0
        self._stepped = False  # an optimizer has stepped since the last backward
        self._total_after_backward: float | None = None
        self._stale: set[int] = set()
        self._depth = 0
        self._below = 0  # dispatch modes that were there before us
        self._stack = ExitStack()
        self.notes: list[str] = []

    def __enter__(self) -> MagnitudeWatch:
        self._install(threading.get_ident())
        self._below = mode_count()
        self._made_until = _sequence_nr()
        self._watch_flow()
        return self

    def __exit__(self, *failure: object) -> None:
        self._leave_flow()
        self._stack.close()
        self._module = None

    # What is put around torch, and taken off in reverse order

    def _install(self, thread: int) -> None:
        engine = torch.autograd.graph._engine_run_backward

        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return engine(outputs, *args, **kwargs)
            return self._run_backward(engine, outputs, args, kwargs)

        owner: Any
        for owner in (torch.autograd, torch.autograd.graph):
            self._stack.callback(setattr, owner, "_engine_run_backward", owner._engine_run_backward)
            owner._engine_run_backward = run_backward
        watch_optimizers(self._stack, self._begin_update, self._end_update)
        self._clipping.install(self._stack, thread)
        self.leaves.allow_swaps(self._stack)
        if self.modules is None:
            self._track_modules(thread)

    def _track_modules(self, thread: int) -> None:
        original = torch.nn.Module.__call__
        self.modules = lambda: self._module

        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._flow is None or threading.get_ident() != thread:
                return original(module, *args, **kwargs)
            outer = self._module
            self._module = ModuleFrame(module, outer)
            try:
                return original(module, *args, **kwargs)
            finally:
                self._module = outer

        self._stack.callback(setattr, torch.nn.Module, "__call__", original)
        torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Our own arithmetic: no mode sees it, no graph is made, no fault of it gets out."""
        try:
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                yield
        except Exception as fault:
            if not self.notes:
                self.notes.append(
                    f"gradient sizes were not all measured: {type(fault).__name__}: {fault}"
                )

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What runs inside is no step of the program."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    # Inspection of the forward pass

    def _watch_flow(self) -> None:
        """Watch the forward pass of the coming step if that step is to be inspected."""
        if self.step > 2 and self.step & (self.step - 1):
            return
        assert self.modules is not None
        modules = self.modules
        self._flow = Flow(lambda: module_path(modules()))
        with lifted_above(self._below):
            self._flow.__enter__()  # type: ignore[no-untyped-call]

    def _leave_flow(self) -> Flow | None:
        flow, self._flow = self._flow, None
        if flow is not None:
            with lifted_above(self._below + 1):
                flow.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return flow

    # A backward pass

    def _run_backward(self, engine: Any, outputs: Any, args: Any, kwargs: Any) -> Any:
        if not self._depth:
            self._clipping.begin_backward()
        if self._depth or not _is_step(args, kwargs):
            return engine(outputs, *args, **kwargs)
        if not kwargs.get("accumulate_grad", False):  # hands its gradients out: nothing to read
            result = engine(outputs, *args, **kwargs)
            self.losses.append(None)
            self.step += 1
            return result
        if self.limit is not None and self.step >= self.limit:
            self.on_stop()
            raise StopTrace
        frame = sys._getframe(2)
        roots = [
            root for root in outputs if isinstance(root, torch.Tensor) and root.grad_fn is not None
        ]
        flow = self._leave_flow()
        crossings: Crossings | None = None
        before: dict[int, tuple[int, int]] | None = None
        loss = None
        with self._ours():
            loss = _loss(roots)
            if flow is not None and self._summed is None:
                self._summed = summed(roots, flow)
            crossings = self._inspect(roots, flow, frame)
            if crossings is not None or self._is_measured(loss):
                before = self._versions()
        self._depth += 1
        try:
            result = engine(outputs, *args, **kwargs)
        except BaseException:
            with self._ours():
                if crossings is not None:  # stopped at a bad gradient: how it grew is still wanted
                    self._growths.note(self.step, crossings, flow)
            raise
        finally:
            self._depth -= 1
            if crossings is not None:
                crossings.close()
        if before is not None:
            with self._ours():
                self._after_backward(roots, flow, crossings, before, frame)
        self.losses.append(loss)
        self.step += 1
        self._stepped = False
        self.on_step(self.step)
        self._watch_flow()
        return result

    def _inspect(
        self, roots: list[torch.Tensor], flow: Flow | None, frame: Any
    ) -> Crossings | None:
        made = _sequence_nr() - self._made_until
        grown = made > 1.5 * self._largest and len(self._inspected) < _MOST_INSPECTED
        self._made_until = _sequence_nr()
        if flow is None and not grown:
            return None
        self._largest = max(self._largest, made)
        self._inspected.append(self.step)
        self.layers.look(frame)

        def place_of(seq: int) -> tuple[object, str | None]:
            noted = flow.calls.get(seq) if flow is not None else None
            return (
                (noted.user[0], noted.module) if noted is not None and noted.user else (None, None)
            )

        return Crossings([root.grad_fn for root in roots], place_of)

    def _is_measured(self, loss: float | None) -> bool:
        """Whether to take the norms of this step: of each for a command that asks for them, else
        of the first ones and where the loss has leapt."""
        if self.measure is not None or self.step < _MEASURED_FIRST:
            return True
        before = self.losses[-1]
        return loss is not None and before is not None and not abs(loss) <= _LEAP * abs(before)

    def _versions(self) -> dict[int, tuple[int, int]]:
        """Each gradient that is there already, to tell which ones this pass adds to."""
        held = {}
        for leaf in self.leaves.alive():
            grad = leaf.grad
            if grad is not None:
                held[id(leaf)] = (id(grad), grad._version)
        if self._stepped:
            self._stale = {
                key
                for key in held
                if key in self._updates.trained and _any(self._updates.trained[key].grad)
            }
        else:
            self._stale = set()
        return held

    def _after_backward(
        self,
        roots: list[torch.Tensor],
        flow: Flow | None,
        crossings: Crossings | None,
        before: dict[int, tuple[int, int]],
        frame: Any,
    ) -> None:
        for leaf in crossings.variables if crossings is not None else ():
            self.leaves.meet(leaf, frame)
        touched = [
            leaf
            for leaf in self.leaves.alive()
            if leaf.grad is not None and before.get(id(leaf)) != (id(leaf.grad), leaf.grad._version)
        ]
        self._stale &= {id(leaf) for leaf in touched}
        norms = dict(zip(map(id, touched), norms_of([leaf.grad for leaf in touched]), strict=True))
        self.leaves.note(self.step, norms, weigh=crossings is not None)
        self._total_after_backward = self._total() if crossings is not None else None
        if flow is not None:
            zero = {key for key, norm in norms.items() if norm == 0.0}
            self.absences.look(self.step, flow, roots, crossings, zero, self._updates.trained)
        if crossings is not None:
            self._growths.note(self.step, crossings, flow)
        if self.measure is not None:
            touched = self.leaves.in_module_order(touched)
            self.measure.after_backward(
                self.step, touched, self.leaves.name_of, crossings is not None
            )

    # An optimizer step

    def _begin_update(self, optimizer: Any) -> None:
        if self._flow is not None:
            self._flow.paused = True
        if not self._depth and self.step:
            with self._ours():
                self._before_update(optimizer)

    def _end_update(self, optimizer: Any) -> None:
        self._clipping.end_update(optimizer)
        if self._flow is not None:
            self._flow.paused = False
        self._stepped = True
        if self.measure is not None and not self._depth:
            with self._ours():
                self.measure.after_update(self.leaves.alive(), self.leaves.name_of)

    def _before_update(self, optimizer: Any) -> None:
        clipped = None
        if self._total_after_backward:
            clipped = self._total() / self._total_after_backward
            self._total_after_backward = None
        frame = sys._getframe(3)
        self._updates.note(self.step - 1, optimizer, self._stale, clipped, frame)

    def _total(self) -> float:
        grads = [leaf.grad for leaf in self.leaves.alive() if leaf.grad is not None]
        return math.hypot(*norms_of(grads))

    # The end

    def facts(self) -> Magnitudes:
        """What was measured so far."""
        leaves = self.leaves.facts(self.step)
        known = dict(self.leaves.names)
        return Magnitudes(
            leaves=leaves,
            growths=self._growths.strongest(),
            absences=self.absences.facts(leaves, self._updates.trained, known, self._updates.given),
            updates=self._updates.facts(),
            inspected=tuple(self._inspected),
            measured=self.measure.facts() if self.measure is not None else None,
            clips=self._clipping.facts(),
            summed=self._summed,
        )

    def steps(self) -> tuple[Step, ...]:
        """The steps, for a run that no recorder counted."""
        return tuple(Step(index, loss, 0.0, 0) for index, loss in enumerate(self.losses))


def _any(grad: torch.Tensor | None) -> bool:
    values = plain(grad) if grad is not None else None
    return values is not None and bool(values.any())


def _is_step(args: Any, kwargs: Any) -> bool:
    """As the recorder counts: a pass that leaves gradients behind, or hands out those of leaves."""
    if kwargs.get("accumulate_grad", False):
        return True
    create_graph = bool(args[2]) if len(args) > 2 else False
    asked = args[3] if len(args) > 3 else ()
    leaves = any(isinstance(one, torch.Tensor) and one.is_leaf for one in asked or ())
    return leaves and not create_graph


def _loss(roots: list[torch.Tensor]) -> float | None:
    values = [plain(root) for root in roots]
    if any(value is None for value in values):
        return None
    return sum(float(value.sum(dtype=torch.float64)) for value in values if value is not None)
