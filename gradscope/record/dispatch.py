"""The stack of dispatch modes, which the program uses as well as we do, and the one of ours on it.

A mode leaves the stack by popping whatever lies on top. So one of ours that comes and goes while
the program runs must never come to lie above one of the program's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from gradscope.record.context import RunContext
from gradscope.record.journal import Note
from gradscope.record.schema import OpInfo, read_schema
from gradscope.record.sites import note_site
from gradscope.record.sizes.flow import Flow
from gradscope.record.stand_ins import hide_from_dynamo, leave_us_out, runs_ops
from gradscope.record.tracing import unprofiled

_current_node = torch._C._current_autograd_node
_sequence_nr = torch._C._autograd._get_sequence_nr
_modes_left = torch._C._len_torch_dispatch_stack
_push: Any = torch._C._push_on_torch_dispatch_stack
_pop: Any = torch._C._pop_torch_dispatch_stack
_entered: Any = torch._C
_guard_of_keys = _entered._ForceDispatchKeyGuard
_without_functions: Any = torch._C.DisableTorchFunction
_KEYS_OF_MODES = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)


class Unseen(TorchDispatchMode):
    """A mode that the program and its compilers know nothing of."""

    supports_higher_order_operators = True

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)  # type: ignore[no-untyped-call]
        if "__torch_dispatch__" in vars(cls):
            hide_from_dynamo(cls.__torch_dispatch__)

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps __torch_dispatch__ to hide it from Dynamo, which imports Dynamo (a
        # second) at the first op and costs a microsecond at each.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # what Dynamo still captures (see `depth`) it captures without us

    @classmethod
    def is_infra_mode(cls) -> bool:
        # What torch 2.6 asks in the place of that.
        return not hasattr(TorchDispatchMode, "ignore_compile_internals")


def mode_count() -> int:
    """How many modes there are, without those of torch's tracers, which lie in places of their
    own below all others."""
    modes: list[Any] = _get_current_dispatch_mode_stack()
    return sum(getattr(mode, "_mode_key", None) is None for mode in modes)


@contextmanager
def lifted_above(depth: int) -> Iterator[None]:
    """Takes the modes above the first `depth` ones off for the moment."""
    above = [_pop(None) for _ in range(mode_count() - depth)]
    try:
        yield
    finally:
        for mode in reversed(above):
            _push(mode)


class _Keys:
    """What `torch.compile` enters around compiled code: it puts back which kinds of dispatch are
    on. A mode that has come or gone in there has changed that for good."""

    def __init__(self, mode: Dispatch, *keys: Any) -> None:
        self._mode, self._was_there = mode, mode.is_there
        self._guard = _guard_of_keys(*keys)

    def __enter__(self) -> None:
        self._guard.__enter__()

    def __exit__(self, *failure: object) -> None:
        self._guard.__exit__(*failure)
        if self._mode.is_there is not self._was_there:
            for key in _KEYS_OF_MODES:
                torch._C._dispatch_tls_set_dispatch_key_included(key, _modes_left() > 0)


class Dispatch(Unseen):
    """Context manager: below every mode that comes after it. `flow` follows the coming forward
    pass. Not reentrant, and of the thread that entered it (autograd's own threads included)."""

    def __init__(self, context: RunContext) -> None:
        super().__init__()
        self.context = context
        self.made = 0  # what `note_call` has told of the op that ran last
        self.is_full = False  # every op is looked at
        self.flow: Flow | None = None
        self.capturing = False  # a CUDA graph
        self.on_asked: Callable[[bool], None] = lambda asked: None  # told as it comes and goes
        self.is_there = True
        self._below = 0  # modes that were there before
        self._all_below = 0  # with those of torch's tracers

    def __enter__(self) -> Dispatch:
        self._below, self._all_below = mode_count(), _modes_left()
        self.context.seq = _sequence_nr()
        super().__enter__()  # type: ignore[no-untyped-call]
        self._settle()
        _entered._ForceDispatchKeyGuard = lambda *keys: _Keys(self, *keys)
        return self

    def __exit__(self, *failure: object) -> None:
        _entered._ForceDispatchKeyGuard = _guard_of_keys
        with lifted_above(self._below + self.is_there):
            if not self.is_there:
                _push(self)
            super().__exit__(*failure)  # type: ignore[no-untyped-call]

    @property
    def is_on(self) -> bool:
        """Whether the ops that run now come by: `_disable_current_modes` takes all modes off."""
        return self in _get_current_dispatch_mode_stack()

    def look_in_full(self, is_full: bool) -> None:
        self.is_full = is_full
        self._settle()

    def follow(self, flow: Flow | None) -> None:
        self.flow = flow
        self._settle()

    def _settle(self) -> None:
        is_asked = self.is_full or self.flow is not None
        if is_asked is not self.is_there:
            with lifted_above(self._below + self.is_there):
                _push(self) if is_asked else _pop(None)
            self.is_there = is_asked
            self.context.seq = _sequence_nr()
        self.on_asked(is_asked)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.capturing or _modes_left() > self._all_below:
            # A tracer (make_fx, FakeTensorMode) lies below all modes: there are no values to look
            # at, and a question of ours would become part of what it traces.
            return func(*args, **kwargs)
        info = read_schema(func)
        try:
            # The program's function modes, and classes of tensors, have seen what was called: they
            # would be asked again for this op, and for each that the engine calls. They do see what
            # a kernel of the program's calls.
            with _without_functions() if info.native else nullcontext():
                if self.is_full:
                    out = self.run(func, args, kwargs)
                else:
                    out = func(*args, **kwargs)
                    try:
                        self.made = self.note_call(info, _current_node(), args, kwargs)
                    except Exception as fault:
                        self.context.could_not_look_at(info.name, fault)
            if self.flow is not None:
                noted = func, args, kwargs, out, self.made
                with _without_functions(), unprofiled():
                    self.context.shielded(info.name, self.flow.note, *noted)
        except BaseException as error:
            leave_us_out(error)
            raise
        return out

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An op, at which all is looked that it shows."""
        return func(*args, **kwargs)

    def note_call(
        self, info: OpInfo, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int:
        """Remember where the op was called that has just run, inside of a `node` or of none, if it
        has made one: the sequence counter as the first one of it left it, else 0.

        A node made by an op takes its number just before the op gets here. Numbers in between
        belong to nodes made after the last op returned (CopySlices, regenerated views).
        """
        context, seq = self.context, _sequence_nr()
        calls, module = context.journal.calls, context.module
        if seq == context.seq:
            if not info.written:
                return 0
            # An in-place op takes the place of the clone that autograd made for it, if it did.
            taken = self._taken(seq, info.written_tensors(args, kwargs), sys._getframe(1))
            if taken:
                calls.update(dict.fromkeys(taken, calls[seq - 1]._replace(info=info, value=None)))
            return taken.start + 1 if taken else 0
        user, inner = note_site(sys._getframe(1), module)
        made_in = node._sequence_nr() if node is not None else None
        if made_in is not None and not user:
            earlier = context.journal.call_of(made_in)
            if earlier is not None:
                user, inner = earlier.user, earlier.inner
        constant = None
        if info.shifts and len(args) > 1 and type(args[1]) in (int, float):
            constant = float(args[1])
        if info.hangs_on_modes or (info.fill_hangs_on_modes and args[-1].requires_grad):
            context.rounded_otherwise[info.name] = None
        calls[seq - 1] = Note(info, user, inner, module, made_in=made_in, constant=constant)
        context.seq = seq
        return seq

    def _taken(self, seq: int, written: list[torch.Tensor], frame: FrameType) -> range:
        """The sequence numbers below `seq` (the counter) that belong to the call of an in-place op,
        which `frame` made, the op's own nodes first. Empty where autograd made no clone for it.

        Of one whose derivative needs what it overwrites (`div_`, `log_`, `pow_`, ...) autograd
        first makes the node, then saves a `clone` of the operand that nobody wrote, which may take
        a node and its number too, and only then runs the op: the numbers of the call were given out
        before.
        """
        calls, clones = self.context.journal.calls, 0
        last = calls.get(seq - 1)
        if last is None or last.info.name != "clone":
            return range(0)
        own = last.info, *note_site(frame, self.context.module)
        while (note := calls.get(seq - 1 - clones)) and (note.info, note.user, note.inner) == own:
            clones += 1
        # A clone of what needs no gradient makes no node: its call was noted under the op's number.
        nodes = clones if any(tensor.requires_grad for tensor in written) else 0
        taken = range(seq - clones - nodes, seq)
        return taken if not any(number in calls for number in taken[:nodes]) else range(0)


runs_ops(Dispatch.__torch_dispatch__)
