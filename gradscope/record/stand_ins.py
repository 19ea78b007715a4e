"""What stands in the place of a function of torch's for a while, looking as that one does."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import WRAPPER_ASSIGNMENTS, cache
from threading import get_ident
from types import (
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    TracebackType,
)
from typing import Any

import torch

from gradscope.record.sites import OURS, file_in_torch, kind_of

_dynamo: Any = torch._C._dynamo.eval_frame
_CALLS_OP = torch._ops.OpOverload.__call__.__code__
_is_compiling = torch.compiler.is_dynamo_compiling
# With what each stands for; the code is kept, so that no other gets its identity.
_stand_ins: dict[int, tuple[CodeType, Any]] = {}
_CALL_NOBODY = ("gradscope.ops", "gradscope.record.sites", "gradscope.record.sizes.flow")
_HAS_STRATEGIES = hasattr(_dynamo, "_FrameExecStrategy")  # torch 2.6 has none


def stand_in(
    stack: ExitStack,
    owner: Any,
    name: str,
    new: Callable[..., Any],
    *,
    inner: bool = False,
    of_each: bool = False,
) -> None:
    """Put `new` in the place of a function, until `stack` ends. What the program can ask a function
    (its name, documentation, annotations, signature, attributes) is answered as by the original.
    `inner` is as in `hide_from_dynamo`. With `of_each`, the class itself goes on to give the
    original of a method: torch looks there for what it asks those about who override it, and the
    tables that they have of torch's functions know no other."""
    old = vars(owner).get(name, getattr(owner, name))
    original = old.original if isinstance(old, _OfEach) else getattr(old, "__func__", old)
    for attribute in WRAPPER_ASSIGNMENTS:
        if hasattr(original, attribute):
            setattr(new, attribute, getattr(original, attribute))
    vars(new).update(getattr(original, "__dict__", {}))
    with suppress(ValueError):  # a method that is written in C tells none
        signature = inspect.signature(original)
        if inspect.signature(new) != signature:
            new.__signature__ = signature  # type: ignore[attr-defined]
    hide_from_dynamo(new, inner=inner)
    _stand_ins[id(new.__code__)] = new.__code__, original
    if name == "__call__" or not isinstance(owner, type):
        # What Dynamo traces in its place. Of a method, it would call that without `self` where its
        # graph breaks, so that a method calls the original itself, see `is_elsewhere`.
        vars(new)["_torchdynamo_inline"] = original
    if name in vars(owner):
        stack.callback(setattr, owner, name, old)
    else:  # it belongs to a class above
        stack.callback(delattr, owner, name)
    if of_each:
        setattr(owner, name, _OfEach(original, new))
    else:
        kind = classmethod if isinstance(old, ClassMethodDescriptorType) else type(old)
        setattr(owner, name, kind(new) if kind in (classmethod, staticmethod) else new)


def of_class(owner: type, name: str) -> Callable[..., Any]:
    """A class method as a function of the class; torch 2.14 has written some in C."""
    held = vars(owner)[name]
    return getattr(held, "__func__", held)  # type: ignore[no-any-return]


def around(
    stack: ExitStack,
    thread: int,
    owner: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Until `stack` ends, tell of the calls of a function in this thread, `within` a context:
    `before` of the frame that calls it and the arguments, `after` of the result as well, which
    comes behind the frame."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        is_ours = not is_elsewhere(thread)
        if before is not None and is_ours:
            with within():
                before(sys._getframe(1), *args, **kwargs)
        with without_us:
            result = original(*args, **kwargs)
        if after is not None and is_ours:
            with within():
                after(sys._getframe(1), result, *args, **kwargs)
        return result

    stand_in(stack, owner, name, call)


@dataclass(frozen=True)
class _OfEach:
    """A method of instances that their class does not show."""

    original: Any
    method: Callable[..., Any]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self.original if instance is None else MethodType(self.method, instance)


def standing(owner: Any, name: str) -> Any:
    """What an instance gets there by now: torch's own, or what stands in for it already."""
    found = vars(owner).get(name)
    return found.method if isinstance(found, _OfEach) else getattr(owner, name)


def is_elsewhere(thread: int) -> bool:
    """Whether what runs is not the program in this thread, so that only the original has to run:
    that of another thread, or what Dynamo writes down, for which the first of these is a constant.
    """
    return _is_compiling() or get_ident() != thread


@cache
def hide_all_from_dynamo() -> None:
    """`torch.compile` neither compiles nor counts a function of ours that is loaded by now. It may
    what they call, which may be the program's, but for modules that never call it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("gradscope."):
            for code in _codes(vars(module).values(), name):
                _hide(code, inner=name.startswith(_CALL_NOBODY))


def _codes(values: Iterable[Any], *modules: str) -> Iterable[CodeType]:
    for value in values:
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(value, CodeType):
            yield value
            yield from _codes(value.co_consts)
        elif getattr(value, "__module__", None) in modules:
            if isinstance(value, type):
                generated = f"namedtuple_{value.__name__}"
                yield from _codes(vars(value).values(), *modules, generated)
            elif isinstance(function := inspect.unwrap(value), FunctionType):
                yield from _codes((function.__code__,))


def hide_from_dynamo(function: Callable[..., Any], *, inner: bool = True) -> None:
    """`torch.compile` runs this function of ours as it is, and with `inner` all that it calls.
    Told to the frame evaluator, since telling Dynamo imports it, which takes a second."""
    assert isinstance(function, FunctionType)
    _hide(function.__code__, inner=inner)


def _hide(code: CodeType, *, inner: bool) -> None:
    if not _HAS_STRATEGIES:
        _dynamo.skip_code(code)  # not what it calls: nothing short of Dynamo can
        return
    skip, default = _dynamo._FrameAction.SKIP, _dynamo._FrameAction.DEFAULT
    strategy = _dynamo._FrameExecStrategy(skip, skip if inner else default)
    _dynamo.set_code_exec_strategy(code, strategy)


class _WithoutUs:
    """A block of a function of ours: what is raised there goes on to the program with no frame of
    ours in its traceback."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if error is not None:
            leave_us_out(error)


without_us = _WithoutUs()


def leave_us_out(error: BaseException) -> None:
    """The same where a block would cost too much, at each op and module: an exception that is to be
    raised on without more. None of torch's own frames is left either around an op that we call. A
    fault of ours keeps them."""
    frames, called_by_us = list[TracebackType](), False
    for way in links(error.__traceback__):
        code = way.tb_frame.f_code
        is_ours = kind_of(code) == OURS and not file_in_torch(code)
        if not is_ours and not (called_by_us and code is _CALLS_OP):
            frames.append(way)
        elif is_ours and way.tb_next is None and not stands_in(code):
            return
        called_by_us = is_ours
    inner = None
    for one in reversed(frames):
        one.tb_next, inner = inner, one
    error.__traceback__ = inner


def links(frames: TracebackType | None) -> Iterator[TracebackType]:
    """Of a traceback, the outermost first."""
    while frames is not None:
        yield frames
        frames = frames.tb_next


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, the one that called it, ..."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def runs_ops(function: Any) -> None:
    """This function of ours runs an op: what it lets out is that op's."""
    _stand_ins[id(function.__code__)] = function.__code__, function


def stands_in(code: CodeType) -> bool:
    """Whether it runs in the place of a function of torch's: what it lets out is that one's."""
    return id(code) in _stand_ins


def behind(function: Any) -> Any:
    """What a function stands for; itself, where it stands for nothing."""
    _, original = _stand_ins.get(id(getattr(function, "__code__", None)), (None, function))
    return original
