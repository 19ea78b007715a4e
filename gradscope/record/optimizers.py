"""What an optimizer holds, and being told when it works: in `step()`, and not in its closure."""

import functools
import inspect
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gradscope.facts import Setting
from gradscope.record.held import kind_of_class
from gradscope.record.sites import LIBRARY, USER, Site, kind_of, user_site
from gradscope.record.stand_ins import around, is_elsewhere, without_us
from gradscope.record.tracing import computes_values

# By torch's own names. What else a group holds may well be inf: a bound that is switched off.
_SETTINGS = ("lr", "betas", "momentum", "dampening", "weight_decay", "eps", "alpha")

_BLIND = frozenset(
    "Adadelta Adafactor Adagrad Adam AdamW Adamax Muon NAdam RAdam RMSprop Rprop SparseAdam".split()
)


@dataclass(slots=True)
class Work:
    """What an optimizer does by itself: all of `step()`, or a part of it up to a call of its
    closure, or from there on. `frame` runs `step()`. `updates`: the optimizer has the gradients
    that it steps along; where it is given a closure, that one is yet to make them at first. `over`:
    `step()` is done. `inner`: another optimizer has called it."""

    optimizer: Any
    frame: FrameType
    updates: bool
    inner: bool = False
    over: bool = False
    _site: Site | None = None

    @property
    def site(self) -> Site:
        """The user's instruction that calls `step()`; asked for while it runs."""
        if self._site is None:
            self._site = user_site(self.frame)
        return self._site


class LetsPass:
    """Lets steps go by unseen, as long as there are `passes` that may: here none."""

    passes = 0

    def lets_step(self, optimizer: Any, *, has_closure: bool) -> bool:
        """Whether one may that is about to."""
        return False

    def note_step(self, optimizer: Any) -> None:
        """One has stepped meanwhile."""


def is_blind_to_scale(kind: type) -> bool:
    """Whether it divides by the size of the gradient, so that a loss that is N times larger takes
    the same steps: no class tells. A package's are known by their names; what a program calls its
    own says nothing."""
    # By the class: torch puts a `step` of its own around the one that it inherits.
    return any(one.__name__ in _BLIND and kind_of_class(one) == LIBRARY for one in kind.__mro__)


def parameters_of(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def held_by(optimizer: Any) -> set[int]:
    return set(map(id, parameters_of(optimizer)))


def grads_of(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [one.grad for one in parameters if one.grad is not None]


def own_step(kind: Any) -> CodeType | None:
    """The code of `step()` of a class of optimizers that the program defines."""
    code = getattr(inspect.unwrap(kind.step), "__code__", None)
    return code if code is not None and kind_of(code) == USER else None


def groups_of(optimizer: Any) -> list[tuple[float, frozenset[int]]]:
    """The weight decay of each group, and its parameters by id."""
    return [
        (next(iter(_numbers(one.get("weight_decay"))), 0.0), frozenset(map(id, one["params"])))
        for one in optimizer.param_groups
    ]


def doubled_by(optimizer: Any) -> set[int]:
    """What stands more than once in a group."""
    counts = (Counter(map(id, group["params"])) for group in optimizer.param_groups)
    return {key for group in counts for key, count in group.items() if count > 1}


def rate_of(optimizer: Any) -> float | None:
    """The largest learning rate of its groups; None where none can be read."""
    first, *others = optimizer.param_groups
    if not others and type(lr := first.get("lr")) is float:
        return lr
    rates = [one for group in optimizer.param_groups for one in _numbers(group.get("lr"))]
    return max(rates, key=abs, default=None)


def bad_settings(optimizer: Any, step: int) -> Iterator[Setting]:
    """Those that are inf or NaN, of the ones that a step is computed with, each once."""
    seen = set()
    for group in optimizer.param_groups:
        for name in filter(group.__contains__, _SETTINGS):
            for place, value in enumerate(_numbers(group[name])):
                called = f"{name}[{place}]" if isinstance(group[name], tuple | list) else name
                if not math.isfinite(value) and called not in seen:
                    seen.add(called)
                    yield Setting(called, value, type(optimizer).__name__, step)


def _numbers(value: object) -> tuple[float, ...]:
    """Those of a setting that are real; none that lie on a device, which reading would wait for."""
    if isinstance(value, tuple | list):
        return tuple(number for one in value for number in _numbers(one))
    if isinstance(value, torch.Tensor):
        is_read = value.is_cpu and value.numel() == 1 and not value.is_complex()
        return (float(value),) if is_read else ()
    return (float(value),) if isinstance(value, int | float) else ()


Told = Callable[[Any, FrameType], None]


def watch_optimizers(
    stack: ExitStack,
    before: Callable[[Work], None],
    after: Callable[[Work], None],
    made: Told,
    coasting: LetsPass = LetsPass(),  # noqa: B008  # it has no state
    loaded: Told | None = None,
) -> None:
    """Call `before` and `after` around all that an optimizer does in this thread, until `stack`
    ends. The closure that it is given is the program's own work, an ordinary forward and backward.
    `made` is called with each new optimizer and the frame that asked for it, `loaded` with one that
    has been given a state. Of a `step()` that `coasting` lets go by, that alone is told, when it is
    over.

    Torch's hooks are of the whole process. Another thread trains on parameters of its own, and
    reading their gradients from here, while it replaces them, crashes natively.
    """
    thread = threading.get_ident()
    running: list[Work] = []  # optimizers may step others

    def begin(optimizer: Any, args: Any, kwargs: Any) -> Any:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        has_closure = callable(closure)
        if is_elsewhere(thread) or coasting.lets_step(optimizer, has_closure=has_closure):
            return None
        if not computes_values():
            return None
        frame = sys._getframe(1)
        work = Work(optimizer, frame, updates=not has_closure, inner=bool(running))
        running.append(work)
        before(work)
        if not has_closure:
            return None
        wrapped = outside(closure, len(running) - 1)
        if len(args) > 1:
            return (args[0], wrapped, *args[2:]), kwargs
        return args, {**kwargs, "closure": wrapped}

    def outside(closure: Callable[..., Any], depth: int) -> Callable[..., Any]:
        @functools.wraps(closure)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_elsewhere(thread) or not computes_values() or depth >= len(running):
                return closure(*args, **kwargs)
            after(running[depth])
            with without_us:
                result = closure(*args, **kwargs)
            running[depth].updates = True
            before(running[depth])
            return result

        return call

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_elsewhere(thread):
            return
        if coasting.passes:
            coasting.note_step(optimizer)
            return
        if not computes_values() or not any(
            work.optimizer is optimizer for work in reversed(running)
        ):
            return
        while (work := running.pop()).optimizer is not optimizer:
            pass  # a step that raised has no end of its own
        if not work.updates:  # it has not called its closure
            work.updates = True
            before(work)
        work.over = True
        after(work)

    for name, told in (("__init__", made), ("load_state_dict", loaded)):
        if told is not None:
            tell = functools.partial(_tell, told)
            around(stack, thread, torch.optim.Optimizer, name, after=tell)
    stack.callback(register_optimizer_step_pre_hook(begin).remove)
    stack.callback(register_optimizer_step_post_hook(end).remove)
    stack.callback(running.clear)


def _tell(told: Told, frame: FrameType, _: None, one: Any, /, *more: Any, **named: Any) -> None:
    told(one, outside_of(one, frame))


def outside_of(one: Any, frame: FrameType) -> FrameType:
    """The frame outside of an object's own methods: that which called its class to make it."""
    while frame.f_back is not None and _first_argument(frame) is one:
        frame = frame.f_back
    return frame


def _first_argument(frame: FrameType) -> object:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
