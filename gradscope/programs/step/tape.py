"""Writes down what a program asks of torch in the steps that are to be kept: each call, with its
arguments, where it stands, and what the variables around it hold."""

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gradscope.facts import NotChecked
from gradscope.programs.step.allowed import WHOLE, name_of
from gradscope.programs.step.surroundings import Scopes
from gradscope.programs.step.values import Unkept, written
from gradscope.record.finite import unwrapped
from gradscope.record.graph import function_name
from gradscope.record.observation import Observation
from gradscope.record.oprun import flatten
from gradscope.record.optimizers import Work, watch_optimizers
from gradscope.record.sites import USER, kind_of
from gradscope.record.stand_ins import of_class, stand_in
from gradscope.record.tracing import computes_values, unobserved

MOST_CALLS = 200_000
_LARGE = 4 * 2**20  # bytes of a tensor of which only the selected part is kept
_SELECTS = frozenset(
    f"torch.{owner}{name}"
    for owner in ("", "Tensor.", "functional.")
    for name in ("__getitem__", "index_select", "narrow", "select", "chunk", "split", "take")
)
_WRITES = ("__set__", "__delete__", "retain_grad", "backward")

Json = Any


class Full(Exception):
    """The step takes more room than it may: what it has too much of."""


class Tape:
    """What was written down so far, as JSON has it: see `store`. `most` are the bytes that its
    tensors may take. Not of other threads than the one that it begins in."""

    def __init__(self, observation: Observation, most: int) -> None:
        self.observation = observation
        self._most = most
        self.first = 0  # the step that it begins with
        self.full = ""  # what there was too much of
        self.is_running = False
        self._inside = 0  # what torch does within a call that is looked at as one
        self._thread = threading.get_ident()
        self._stack = ExitStack()
        self._forget()

    def _forget(self) -> None:
        self.nbytes = 0
        self.calls: list[Json] = []
        self.leaves: list[Json] = []
        self.optimizers: list[Json] = []
        self.states: list[Json] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.unkept: dict[NotChecked, None] = {}
        self.scopes = Scopes(self.held, self.leaf_of)
        self._values = 0
        self._ids: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._cut: dict[Any, str] = {}
        self._optimizer_ids: dict[int, tuple[Any, int]] = {}
        self._random: torch.Tensor | None = None
        self._pending: Json = None

    def begin(self, step: int) -> None:
        """From here on, in the thread that asks."""
        self.is_running, self.first, self._thread = True, step, threading.get_ident()
        for name, (owner, attribute) in WHOLE.items():
            assert name_of(getattr(owner, attribute)) == name
            self._stand_around(owner, attribute)
        function = torch.autograd.Function
        stand_in(self._stack, function, "apply", self._around_apply(of_class(function, "apply")))
        watch_optimizers(self._stack, self._before_update, self._after_update, self._made)
        self._stack.enter_context(_Mode(self.call))

    def end(self) -> None:
        """Nothing more is written down. What is put around torch stays: the process ends, and it
        may be in the middle of a call that we stand around."""
        self.is_running = False
        if self._pending is not None:
            self._add(self._pending, None)
        with unobserved():
            try:
                self.scopes.finish(self._number)
            except Full as full:
                self._overflow(full)

    def _listens(self) -> bool:
        return (
            self.is_running
            and not (self._inside or self.full)
            and threading.get_ident() == self._thread
            and computes_values()
        )

    def _ops(self) -> int:
        """How many ops have run so far."""
        return self.observation.ops.mode.ops if self.observation.ops is not None else 0

    # What is called

    def call(self, function: Any, args: Any, kwargs: Any, frame: FrameType | None) -> Any:
        """Call a function of torch's, and write that down. `frame` has asked for it."""
        if not self._listens():
            return function(*args, **kwargs)
        name, state = name_of(function), _state()
        given = None
        if name is not None:
            given = self._given(name, args, kwargs, state, _outside_of(function, frame))
        before = self._ops()
        self._inside += 1
        self._pending = given  # it may be the last that is seen of the program
        try:
            result = function(*args, **kwargs)
        except BaseException:
            if given is not None and not self.observation.context.halted:
                self._add(given, None)
            raise
        finally:
            self._inside -= 1
            self._pending = None
        if given is None or name is None:
            self._lose(result)
            return result
        results = flatten(result)
        says = results or self._ops() != before or name.endswith(_WRITES)
        if says and not _selects_little(name, args, results):
            with unobserved():
                self._add(given, self._numbers(result))
                self._random = torch.get_rng_state()
        return result

    def _given(
        self, name: str, args: Any, kwargs: Any, state: Json, frame: FrameType | None
    ) -> Json:
        """The call as it is about to be made; None where that cannot be kept."""
        with unobserved():
            try:
                given = {
                    "f": name,
                    "a": [self._written(one) for one in args],
                    "k": {key: self._written(one) for key, one in kwargs.items()},
                    **self._surroundings(frame, state),
                }
                random = torch.get_rng_state()
                if self._random is None or not torch.equal(random, self._random):
                    given["r"] = self._stored(random)
            except Unkept:
                return None
            except Full as full:
                self._overflow(full)
                return None
        return given

    def _surroundings(self, frame: FrameType | None, state: Json) -> dict[str, Json]:
        if not self.states or self.states[-1] != state:
            self.states.append(state)
        chain, names = self.scopes.at(frame)
        place = {"n": chain, "s": len(self.states) - 1}
        return {**place, "v": names} if names else place

    def _add(self, given: Json, result: Json) -> None:
        if len(self.calls) >= MOST_CALLS:
            self._overflow(Full(f"more than {MOST_CALLS:,} calls"))
        elif not self.full:
            self.calls.append({**given, "o": result} if result is not None else given)

    def _overflow(self, full: Full) -> None:
        self.full = str(full)
        self.calls.clear()
        self.tensors.clear()

    def _lose(self, result: Any) -> None:
        """Of a call that is not kept: what it wrote is taken up again where it is used."""
        for one in flatten(result):
            self._ids.pop(id(one), None)

    # Values

    def _written(self, value: Any) -> Json:
        return written(value, self._number, self._stored)

    def held(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor that is known."""
        known = self._ids.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def _number(self, tensor: torch.Tensor) -> int:
        known = self.held(tensor)
        return self.leaf_of(tensor) if known is None else known

    def _learn(self, tensor: torch.Tensor) -> int:
        self._ids[id(tensor)] = (weakref.ref(tensor), self._values)
        self._values += 1
        return self._values - 1

    def leaf_of(self, tensor: torch.Tensor) -> int:
        """The number of a tensor that the step did not compute: it is stored with its values."""
        kind = type(tensor)
        if kind is not torch.Tensor and not kind.__module__.startswith("torch.nn."):
            raise self._leave_out("tensors of other classes", f"a {kind.__name__} is used")
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            raise self._leave_out("tensors without plain elements", f"a {tensor.layout} is used")
        if unwrapped(tensor) is not tensor:
            raise self._leave_out("what runs in torch.func", "its tensors hold no values")
        if tensor.grad_fn is not None:
            name = self._cut.get(tensor.grad_fn) or tensor.grad_fn.name()
            self._leave_out(f"what lies behind `{name}`", "the kept step begins with its result")
        leaf: Json = {
            "data": self._stored(tensor),
            "grad": tensor.requires_grad,
            "parameter": isinstance(tensor, torch.nn.Parameter),
            "t": self._learn(tensor),
        }
        self.leaves.append(leaf)
        if tensor.is_leaf and tensor.grad is not None:
            leaf["had"] = self._number(tensor.grad)
        return int(leaf["t"])

    def _leave_out(self, what: str, why: str) -> Unkept:
        self.unkept[NotChecked(what, why)] = None
        return Unkept(what, why)

    def _stored(self, tensor: torch.Tensor) -> str:
        self.nbytes += tensor.nbytes
        if self.nbytes > self._most:
            raise Full(f"tensors of more than {self._most / 2**20:,.0f} MiB")
        name = f"t{len(self.tensors)}"
        self.tensors[name] = tensor.detach().clone()
        return name

    def _numbers(self, result: Any) -> Json:
        """The tensors of a result, by number."""
        if isinstance(result, torch.Tensor):
            known = self.held(result)
            return self._learn(result) if known is None else known
        if isinstance(result, list | tuple):
            return [self._numbers(one) for one in result]
        return None

    # Optimizers

    def _made(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer was made: what ran before it only built the model and the data."""
        if self._listens():
            self._forget()

    def _before_update(self, work: Work) -> None:
        if not self._listens():
            return
        is_stock = type(work.optimizer).__module__.startswith("torch.optim.")
        if not (is_stock and work.updates):
            return  # its own work is a part of the program's
        frame, state = work.frame, _state()
        while frame.f_back is not None and kind_of(frame.f_code) != USER:
            frame = frame.f_back
        with unobserved():
            try:
                groups = [  # which the program may have changed
                    {key: self._written(one) for key, one in group.items() if key != "params"}
                    for group in work.optimizer.param_groups
                ]
                number = self._optimizer(work.optimizer)
                call = {"f": STEP, "a": [number], "k": {"groups": groups}}
                self._add({**call, **self._surroundings(frame, state)}, None)
            except Unkept:
                pass
            except Full as full:
                self._overflow(full)
        self._inside += 1

    def _after_update(self, work: Work) -> None:
        if work.over and self._inside:
            self._inside -= 1

    def _optimizer(self, optimizer: Any) -> int:
        known = self._optimizer_ids.get(id(optimizer))
        if known is None:
            made = self.observation.sizes.usages.made_at(optimizer)
            groups = [
                {key: self._written(one) for key, one in group.items()}
                for group in optimizer.param_groups
            ]
            state = [
                [self._number(held), {key: self._written(one) for key, one in kept.items()}]
                for held, kept in optimizer.state.items()
            ]
            kind = type(optimizer).__name__
            data = {"class": kind, "groups": groups, "state": state, "made": self.scopes.site(made)}
            self.optimizers.append(data)
            known = self._optimizer_ids[id(optimizer)] = (optimizer, len(self.optimizers) - 1)
        return known[1]

    # What is put around torch

    def _stand_around(self, owner: Any, attribute: str) -> None:
        original = getattr(owner, attribute)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(original, args, kwargs, sys._getframe(1))

        stand_in(self._stack, owner, attribute, call)

    def _around_apply(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around the `apply` of a custom Function, of which only the results are kept."""

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._listens():
                return original(cls, *args, **kwargs)
            self._inside += 1
            try:
                result = original(cls, *args, **kwargs)
            finally:
                self._inside -= 1
            for one in flatten(result):
                if one.grad_fn is not None:
                    self._cut[one.grad_fn] = f"{function_name(cls)}.apply"
            self._lose(result)
            return result

        return apply


STEP = "step"  # of an optimizer


class _Mode(TorchFunctionMode):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._call(func, args, kwargs or {}, sys._getframe(1))


def _outside_of(function: Any, frame: FrameType | None) -> FrameType | None:
    """The frame that calls a function: one written in Python asks from within itself."""
    code = getattr(function, "__code__", None)
    outer = frame
    for _ in range(8 if code is not None else 0):
        if outer is None:
            break
        if outer.f_code is code:
            return outer.f_back
        outer = outer.f_back
    return frame


def _state() -> Json:
    """The modes that calls depend on: gradients, inference, default dtype, autocast."""
    kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    with torch._C.DisableTorchFunction():
        return {
            "grad": torch.is_grad_enabled(),
            "inference": torch.is_inference_mode_enabled(),
            "autocast": {
                kind: str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
                for kind in kinds
                if torch.is_autocast_enabled(kind)
            },
            "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        }


def _selects_little(name: str, args: Any, results: list[torch.Tensor]) -> bool:
    """Whether of a large tensor that nobody differentiates a small part is taken: that one is
    enough to keep."""
    source = args[0] if name in _SELECTS and args else None
    return (
        isinstance(source, torch.Tensor)
        and not source.requires_grad
        and source.nbytes > max(_LARGE, 4 * sum(one.nbytes for one in results))
    )
