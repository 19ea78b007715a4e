"""What is put around modules and custom Functions while a program runs, to know which of them does.

Taken off in reverse order on every way out. In a thread that is not the program's, the originals
run.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from gradscope.record.context import RunContext
from gradscope.record.dispatch import Dispatch
from gradscope.record.graph import function_name
from gradscope.record.journal import Note
from gradscope.record.oprun import flatten
from gradscope.record.probes.function_checks import FunctionChecks
from gradscope.record.schema import OpInfo
from gradscope.record.sites import ModuleFrame, calls_modules, note_site
from gradscope.record.stand_ins import is_elsewhere, leave_us_out, of_class, stand_in
from gradscope.record.tracing import computes_values

_sequence_nr = torch._C._autograd._get_sequence_nr


def follow_modules(context: RunContext, dispatch: Dispatch, stack: ExitStack, thread: int) -> None:
    """Keep `context.module` true while ops are seen, in one thread, until the stack is closed: a
    tenth of what global forward hooks cost. In between nothing is in the way of a call."""
    ident = threading.get_ident
    original: Callable[..., Any] = torch.nn.Module.__call__
    is_placed = is_asked = False
    placed = ExitStack()

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not is_asked or ident() != thread:
            return original(self, *args, **kwargs)
        outer = context.module
        if outer is None:
            context.shielded("a module", context.names.saw_root, self)
        context.module = ModuleFrame(self, outer)
        try:
            if id(self) in context.followed:
                told = self, outer, (*args, *kwargs, *kwargs.values())
                context.shielded("a module", context.followed[id(self)], *told)
            return original(self, *args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            context.module = outer

    def follow(asked: bool) -> None:
        nonlocal original, is_placed, is_asked
        is_asked = asked
        current: Any = torch.nn.Module.__call__
        if asked and not is_placed:
            original, is_placed = current, True
            stand_in(placed, torch.nn.Module, "__call__", __call__)
        elif not asked and current is __call__:  # else the program has put its own around ours
            placed.close()
            is_placed = False

    calls_modules(__call__.__code__)
    stack.callback(placed.close)
    dispatch.on_asked = follow


def follow_functions(
    context: RunContext,
    checks: FunctionChecks | None,
    stack: ExitStack,
    thread: int,
    on_run: Callable[[Any], None] | None,
) -> None:
    """Have each custom Function checked that is called, keep `context.function` true, tell `on_run`
    of the node that it has made, and note the call under the node's number. Its own forward runs
    without grad, so the first op in there would take that number otherwise."""
    original = of_class(torch.autograd.Function, "apply")

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if is_elsewhere(thread) or context.is_blind or not computes_values():
            return original(cls, *args, **kwargs)
        user, inner = note_site(sys._getframe(), context.module)
        if checks is not None:
            with torch._C.DisableTorchFunction():
                looked = cls, args, kwargs, original, user
                context.shielded("a custom Function", checks.before, *looked)
        seq, name = _sequence_nr(), function_name(cls)
        outer, context.function = context.function, name
        try:
            result = original(cls, *args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            context.function = outer
        if _sequence_nr() > seq:
            context.journal.calls[seq] = Note(OpInfo(name), user, inner, context.module, name)
            with torch._C.DisableTorchFunction():
                nodes = (one.grad_fn for one in flatten(result))
                node = next((one for one in nodes if hasattr(one, "_forward_cls")), None)
                if on_run is not None and node is not None:
                    context.shielded(name, on_run, node)
                if checks is not None and node is not None:
                    context.shielded(name, checks.made, name, node)
        return result

    stand_in(stack, torch.autograd.Function, "apply", apply)
