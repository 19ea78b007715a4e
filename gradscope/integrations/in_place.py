"""The failing step once more, in a copy of the process: in full, and with patches. Where there can
be no copy it is made in the process itself, in full.

Whoever drives the loop knows what a step is: a function, called with a batch. Before the update
the parameters are still those that the step began with, so that calling it again, with the random
states of its start, is the failing step.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradscope.config import Config
from gradscope.dataclass import dataclass
from gradscope.diagnose import diagnose
from gradscope.facts import Ending, Finding, NotChecked, Origin, Replay, Report, Trace
from gradscope.pipeline import conclude
from gradscope.programs import NoAnswer, Repeat, redirect
from gradscope.programs.audit import Effects
from gradscope.programs.load import install
from gradscope.programs.overlay import Overlay, scratch_folder
from gradscope.programs.snapshots.swap import Swapped
from gradscope.record.forking import (
    FORKS,
    Asleep,
    Randomness,
    can_fork,
    forked,
    has_room,
    random_state_kept,
    survives_a_fork,
)
from gradscope.record.held import alive, has_peers
from gradscope.record.observation import Observation
from gradscope.repair import Budget, repaired
from gradscope.repair.differences import repeats

_COPIES = 2  # of the process: the one that sleeps, and one that answers
_MOST_KEPT = 64  # calls between two updates: their batches stay in memory
_SILENT = Repeat(after_update=False)
_WHAT = "the failing step, repeated in full"

Setup = Callable[[], None]


@dataclass(eq=False)
class InPlace:
    """The calls since the last update, each with the random states before it. `seen` is what
    watches them, and `leave` takes it off in a copy; `leave_here`, where a call may be made again
    in this process, takes it off for good."""

    name: str
    config: Config
    seen: Observation
    leave: Callable[[], object]
    leave_here: Callable[[], object] | None = None
    _first: int = 0  # the backward pass with which the calls begin
    _calls: list[tuple[Randomness, Callable[[], object]]] = field(default_factory=list)
    _left_out: str = ""
    _cell: str = ""  # the name under which the text is kept that the calls run
    _asleep: Asleep | None = None

    def begin(self, call: Callable[[], object], cell: str = "") -> None:
        """A step, or a part of one whose gradients add up, is about to run. `call` does again what
        it does: forward and backward, and no update. Of `cell`, where that is given, it runs the
        text that linecache has."""
        self._cell = cell
        if len(self._calls) < _MOST_KEPT:
            self._calls.append((Randomness(), call))
        else:
            self._left_out = f"more than {_MOST_KEPT} backward passes lie between two updates"

    def fall_asleep(self) -> None:
        """Before the calls: what they are made with is kept in a copy of the process, where there
        is room for one, and they are made there. Else they begin with what the first ones left."""
        if not _hindrance() and survives_a_fork() and has_room(_COPIES):
            self._asleep = Asleep(lambda asked: self._in_copy(*asked))

    def end(self) -> None:
        """Nothing is asked any more."""
        if self._asleep is not None:
            self._asleep.end()
            self._asleep = None

    def forget(self) -> None:
        """The update is done."""
        self._calls.clear()
        self._left_out = ""
        self.note_sound()

    def note_sound(self) -> None:
        """Nothing is wrong so far: what an optimizer asks for once more, in the same step, has
        passes of its own."""
        self._first = self.seen.steps

    def has_bad_loss(self) -> bool:
        """Whether a call gave one, whatever its gradients are: that of nothing but ignored targets
        is NaN, with gradients of 0."""
        return self.seen.ran.has_bad_loss(self._first)

    def report(self) -> Report:
        """What the calls show that are made again. Without findings where that is not possible,
        and `not_searched` says why."""
        config = self.config
        budget = Budget(config.verify_time, config.verify_runs)
        unknown = "" if self._calls else "nothing is known that does it again"
        why, hindrance, seen = self._left_out or unknown, _hindrance(), None
        if not why and hindrance and self.leave_here is not None and not has_peers():
            return self._made_here(self.leave_here)
        why = why or hindrance
        try:
            seen = self._again({}, None, budget.seconds) if not why else None
        except NoAnswer:
            why = "the copy of the process did not come to its end"
        if seen is None:
            return self._unrepeated(why)

        def repair(
            seen: Trace, found: tuple[Finding, ...]
        ) -> tuple[tuple[Finding, ...], tuple[()]]:
            return repaired(
                seen,
                found,
                lambda patches, steps, limit, setup: self._again(patches, setup, limit),
                verify=config.verify,
                budget=budget,
                diagnosis=partial(diagnose, limits=config.thresholds),
            ), ()

        return self._with_replay(conclude(self.name, seen, config, repair=repair))

    def _with_replay(self, report: Report) -> Report:
        steps = range(self._first, len(report.trace.steps))
        same = repeats(Trace(self.name, steps=self.seen.ran.facts()), report.trace, steps)
        return replace(report, replay=Replay(Origin.IN_PLACE, self._first, len(steps), same))

    def _made_here(self, leave: Callable[[], object]) -> Report:
        """In this process, whose gradients, buffers and random states are put back afterwards; what
        else a call does, it has then done twice."""
        leave()
        try:
            with _kept(), random_state_kept():
                seen = self._made_again()
        except _Updated:
            why = "it updates parameters itself, which is done in a copy of the process alone"
        except Exception as error:  # the program's own, of what is made twice
            why = f"it raised {type(error).__name__} when it was made again"
        else:
            return self._with_replay(conclude(self.name, seen, self.config))
        return self._unrepeated(why)

    def _unrepeated(self, why: str) -> Report:
        return Report(self.name, Trace(self.name), not_searched=(NotChecked(_WHAT, why),))

    def _made_again(self) -> Trace:
        """The calls, looked at in full."""
        observation = Observation(keep_going=True)
        observation.follow(self.seen, self._first)
        with torch.enable_grad(), observation:
            for randomness, call in self._calls:
                randomness.put_back()
                call()
        return observation.trace(self.name, Ending("finished"))

    def _again(self, patches: Mapping[str, str], setup: Setup | None, limit: float) -> Trace:
        """Raises NoAnswer where the step cannot be told of: it did something outside, the patch
        changes what does not run again, or there was no time."""
        with scratch_folder(_SILENT) as folder:
            asked = folder, dict(patches), setup
            if self._asleep is not None:
                trace: Trace | None = self._asleep.ask(asked, limit)
            else:
                trace = forked(partial(self._in_copy, *asked), limit)
        if trace is None:
            raise NoAnswer
        return trace

    def _in_copy(self, folder: str, patches: Mapping[str, str], setup: Setup | None) -> Trace:
        self.leave()
        self._kernels = _without_collectives()
        Effects(int, lambda effect: os._exit(0))
        install({self._cell: patches[self._cell]} if self._cell in patches else {})
        others = {path: text for path, text in patches.items() if path != self._cell}
        swapped = Swapped(others) if others else None
        redirect.install(Overlay(folder))
        if setup is not None:
            setup()
        trace = self._made_again()
        if swapped is not None and not swapped.has_run:  # calls begin anew
            raise NoAnswer
        return trace


class _Updated(Exception):
    """A call was to do more than forward and backward."""


@contextmanager
def _kept() -> Iterator[None]:
    """Begins without gradients, and leaves gradients and buffers as they were. Raises _Updated
    where an optimizer is to step."""
    modules = list(alive(torch.nn.Module))
    leaves = {id(one): one for module in modules for one in module.parameters()}
    grads = [(leaf, leaf.grad) for leaf in leaves.values()]
    held = {id(one): one for module in modules for one in module.buffers()}
    buffers = [(one, one.clone()) for one in held.values()]
    for leaf, _ in grads:
        leaf.grad = None

    def refuse(*given: object) -> None:
        raise _Updated

    hook = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()
        for leaf, grad in grads:
            leaf.grad = grad
        with torch.no_grad():
            for one, before in buffers:
                one.copy_(before)


def _without_collectives() -> object:
    """As long as that is held, what the ranks would do together raises: they do not wait for a
    copy."""
    if "torch.distributed.distributed_c10d" not in sys.modules:
        return None

    def refuse(*given: object) -> None:
        raise RuntimeError("a copy of a process takes no part in collectives")

    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another kernel is replaced, as is meant
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("c10d::"):
                library.impl(name.removeprefix("c10d::"), refuse, "CPU")
    return library


def _hindrance() -> str:
    """Why no copy of this process can compute; nothing where one can."""
    if can_fork():
        return ""
    linux = "processes are copied on Linux alone"
    return "a process that uses a GPU cannot be copied" if FORKS else linux
