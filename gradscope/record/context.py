"""Where a running program is, and what was noted of it: shared by all that look at its ops."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gradscope.facts import Call
from gradscope.record.events.provenance import Provenance
from gradscope.record.events.received import Received
from gradscope.record.graph import SeenNodes, node_name
from gradscope.record.journal import Journal, Note, to_call
from gradscope.record.lost_bounds import LostBounds
from gradscope.record.names import Names
from gradscope.record.oprun import NodeOps
from gradscope.record.sites import ModuleFrame
from gradscope.record.sizes.built import Built
from gradscope.record.tracing import is_device_assert, unobserved

_FAULTS_TOLD = 3


class RunContext:
    """The observation and its mode keep it true; whoever looks at a step or an op asks it, and gets
    nothing else of them."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.provenance = Provenance()
        self.received = Received(self.provenance)
        self.names = Names()
        self.built = Built()
        self.bounds = LostBounds()
        self.step = 0  # backward passes that were steps, so far
        self.updates: int | None = None  # by optimizers, so far; None without one
        self.nested = 0  # backward passes that run: a reentrant checkpoint has one in another
        self.is_torn = False  # the last backward pass was left by an exception
        self.coasts = False  # nobody looks at what the program does to gradients (see `Coasting`)
        self.is_experiment = False  # what runs is an experiment of ours, and no step of the program
        self.halted = False  # the program is to end: raise at the next op
        self.halt_again: Callable[[], None] = lambda: None
        self.notes: list[str] = []  # what could not be observed, one sentence each
        self.faults = 0
        self.module: ModuleFrame | None = None  # the innermost one that runs, while ops are seen
        self.followed: dict[int, Callable[..., None]] = {}  # told of calls of these, by id
        self.function: str | None = None  # the custom Function whose forward is running
        self.running = NodeOps()  # the ops of the autograd node that is running
        self.seen = SeenNodes()
        self.history: list[NodeOps] = []  # the nodes of this backward pass, while they are small
        self.seq: int = torch._C._autograd._get_sequence_nr()  # after the last op that was noted
        self.rounded_otherwise: dict[str, None] = {}  # ops that hang on modes, in order
        self.in_optimizer = False
        self.tries = False  # an optimizer calls its closure again, where it has gone in this step
        self.bad_in_step = False  # something bad was made that nobody meant

    @property
    def is_blind(self) -> bool:
        """Whether what runs is not to be looked at, neither steps nor ops."""
        return self.halted or self.is_experiment

    @property
    def is_between(self) -> bool:
        """Whether the program runs, and no backward pass of its."""
        return not (self.nested or self.is_experiment)

    @contextmanager
    def experiment(self) -> Iterator[None]:
        """What runs inside is no step of the program."""
        before, self.is_experiment = self.is_experiment, True
        try:
            yield
        finally:
            self.is_experiment = before

    def shielded(self, what: str, look: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """A fault of ours must not become the program's: it costs what we would have said."""
        try:
            look(*args, **kwargs)
        except Exception as fault:
            self.could_not_look_at(what, fault)

    def could_not_look_at(self, what: str, fault: Exception) -> None:
        self.note_fault(f"could not look at `{what}`", fault)

    def note_fault(self, what: str, fault: Exception) -> None:
        if is_device_assert(fault):
            return  # the program's: it meets the same at its next call
        self.faults += 1
        if self.faults <= _FAULTS_TOLD:
            self.notes.append(f"{what}: {type(fault).__name__}: {fault}")

    def end_step(self) -> None:
        self.step += 1
        self.turn_step()

    def turn_step(self) -> None:
        """What is known of a step belongs to an earlier one from now on."""
        self.journal.turn_step()
        self.bad_in_step = False
        self.names.forget_memory()
        self.bounds.forget()

    def call_of_node(self, node: Any) -> Note | None:
        """The forward call that made an autograd node, if there is one."""
        if node is None:
            return None
        seq = node._sequence_nr()
        if node_name(node) == "CopySlices":
            # Made after the in-place op on a view had returned; that op's own node is one below.
            return self.journal.call_of(seq - 1) or self.journal.call_of(seq)
        return self.journal.call_of(seq)

    def call(self, node: Any) -> Call | None:
        """The same with its place in the source."""
        note = self.call_of_node(node)
        return to_call(note, node._sequence_nr(), node_name(node)) if note is not None else None


class shielded:
    """Context manager: our own arithmetic. No mode sees it, no graph is made, and of a fault of it
    only the notes tell."""

    __slots__ = ("_context", "_off", "_unobserved")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._unobserved = unobserved()

    def __enter__(self) -> None:
        self._unobserved.__enter__()
        self._off = torch._C._DisableFuncTorch()

    def __exit__(self, kind: object, fault: object, *rest: object) -> bool:
        del self._off
        self._unobserved.__exit__()
        if isinstance(fault, Exception):
            self._context.note_fault("gradient sizes were not all measured", fault)
        return isinstance(fault, Exception)
