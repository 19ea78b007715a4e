"""How modules are used: whether those that behave otherwise in training (BatchNorm, Dropout) are in
the right mode, and whether anybody calls a method `backward` of their own, as autograd does not."""

import ast
import sys
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import ExitStack
from types import FrameType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradscope.facts import ModeKept, ModuleUse, OwnBackward
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.definitions import head, returned, written_at
from gradscope.record.held import holds_any, outermost
from gradscope.record.journal import Note
from gradscope.record.names import Names
from gradscope.record.sites import USER, Site, kind_of, note_site, resolve, user_frames
from gradscope.record.sizes.dropouts import Dropouts
from gradscope.record.sizes.running_statistics import (
    Followers,
    Hasty,
    is_touched,
    keeps_statistics,
)
from gradscope.record.sizes.undone_eval import UndoneEval
from gradscope.record.stand_ins import is_elsewhere, stand_in, without_us
from gradscope.record.tracing import unobserved
from gradscope.source.arguments import spelled

_FEWEST = 3  # passes in a row: one may be an attack, or a look at the data
_RARE = 0.25  # of all passes: what runs at each step gives a loss of another model its values
_TWO_MODES = (_BatchNorm, nn.Dropout)
_NEUTRAL = {"mul": 1, "div": 1, "add": 0, "sub": 0}  # numbers that leave the other operand


class _Model:
    """One that no other calls, with parts that have two modes."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parts = [one for one in module.modules() if isinstance(one, _TWO_MODES)]
        self.trains = self.evals = self.last = 0
        self.ran_after: list[int] = []  # passes before it ran without gradients in train mode
        self.ran_at: Site = ()
        self.set_at: Site = ()  # where its mode was set before the last pass in eval mode

    @property
    def is_untouched(self) -> bool:
        """Whether its statistics are those that every BatchNorm is made with."""
        kept: list[Any] = [one for one in self.parts if isinstance(one, _BatchNorm)]
        if not kept or not all(keeps_statistics(one) for one in kept):
            return False
        with unobserved():
            return not any(is_touched(one) for one in kept)

    def note_pass(self, step: int, in_eval: Set[int]) -> None:
        """`in_eval`: the parts, by id, that have run with gradients in eval mode."""
        self.last = step
        # A wrapper keeps the mode of an evaluation, where what it wraps has been set back.
        if any(one.training for one in (self.module, *self.parts)):
            self.trains, self.evals = self.trains + 1, 0
        elif any(one.requires_grad for one in self.module.parameters()):
            # Another model may train by what this one gives without a graph.
            self.evals += any(id(one) in in_eval for one in self.parts)


class TrainingModes:
    """Asked at each pass, and told of each `train()`, `eval()` and run without gradients."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._models: dict[int, _Model] = {}
        # Where the mode of a module was set last, and after how many passes.
        self._set: WeakKeyDictionary[nn.Module, tuple[Site, int]] = WeakKeyDictionary()
        self._called: WeakKeyDictionary[nn.Module, Site] = WeakKeyDictionary()  # with gradients
        self._met: WeakSet[nn.Module] = WeakSet()  # parts of which that is known
        self._setting = False
        self._in_eval: set[int] = set()  # the parts that run so, with gradients, by id
        self.followers = Followers()
        self._hasty = Hasty()
        self.dropouts = Dropouts(context)
        self._undone = UndoneEval()
        self.on_evaluation: Callable[[], None] = lambda: None  # told before one begins

    def install(self, stack: ExitStack, thread: int) -> None:
        train: Any = nn.Module.train

        def set_mode(one: Any, *args: Any, **kwargs: Any) -> Any:
            if is_elsewhere(thread) or self._setting:
                return train(one, *args, **kwargs)
            self._setting, before = True, one.training
            try:
                return train(one, *args, **kwargs)
            finally:
                self._setting = False
                self._set[one] = site, step = note_site(sys._getframe(1))[0], self._context.step
                told = one, sys._getframe(1), site, step
                self._context.shielded("a mode", self._undone.note_set, *told)
                if before and not one.training and self._context.step:
                    self._context.shielded("eval mode", self.on_evaluation)

        stand_in(stack, nn.Module, "train", set_mode)
        self._hasty.install(stack, thread)
        for kind in _TWO_MODES:
            self._watch(stack, thread, kind)

    def _watch(self, stack: ExitStack, thread: int, kind: Any) -> None:
        original = kind.forward

        def forward(one: Any, *args: Any, **kwargs: Any) -> Any:
            if is_elsewhere(thread):
                return original(one, *args, **kwargs)
            if kind is _BatchNorm:
                self._hasty.note_run(one, self._context.step)
            self._undone.note_run(one, self._context.step)
            if torch.is_grad_enabled():
                if one not in self._met:
                    self._met.add(one)
                    root, caller = outermost(sys._getframe(1))
                    if caller is not None:
                        self._called[root] = note_site(caller)[0]
                if not one.training:
                    self._in_eval.add(id(one))
            elif one.training:
                self._note_run(*outermost(sys._getframe(1)))
            else:
                told = one, sys._getframe(1), self._context.step
                self._context.shielded("BatchNorm", self.followers.note_run, *told)
            with without_us:
                return original(one, *args, **kwargs)

        stand_in(stack, kind, "forward", forward)

    def _note_run(self, root: Any, caller: FrameType | None) -> None:
        """A part runs in train mode and without gradients: of the outermost module around it."""
        model = self._models.get(id(root))
        if model is None or caller is None or not self._context.step:
            return
        _, set_after = self._set.get(model.module, ((), -1))
        now = self._context.step
        if set_after != now and model.ran_after[-1:] != [now]:
            model.ran_after.append(now)
            model.ran_at = note_site(caller)[0]

    def note_pass(self) -> None:
        """A backward pass begins."""
        if self._context.step < _FEWEST:  # the first call may be a look at the data
            self._met.clear()
        for key, module in self._context.names.running.items():
            if key not in self._models:
                self._models[key] = _Model(module)
            model = self._models[key]
            model.note_pass(self._context.step, self._in_eval)
            if model.evals:
                model.set_at = self._set.get(module, ((), 0))[0]
        self._in_eval.clear()

    def note_coasted(self, passes: int) -> None:
        """So many were not looked at: the modes were as at the last one."""
        for model in self._models.values():
            if model.evals:
                model.evals += passes
            elif model.trains:
                model.trains += passes

    def facts(self, trained: Collection[int]) -> tuple[ModuleUse, ...]:
        """Of the models whose parameters, by id, somebody trains, and of those that follow them."""
        names = self._context.names
        learning = [one for one in self._models.values() if holds_any(one.module, trained)]
        found: list[ModuleUse] = [
            *self.followers.facts(trained, names),
            *self._hasty.facts(names),
            *self._undone.facts(trained, names),
            *self.dropouts.facts((one.module for one in learning if one.trains), names),
        ]
        for model in learning:
            kinds = tuple(sorted({type(one).__name__ for one in model.parts}))
            passes = model.trains + model.evals
            if not kinds or passes < _FEWEST:
                continue
            name = names.called(model.module)
            called, runs = self._called.get(model.module, ()), len(model.ran_after)
            kept: list[tuple[str, int, Site]] = []
            if model.evals >= _FEWEST:
                kept.append(("eval", model.evals, model.set_at))
            if 0 < runs <= passes * _RARE and model.trains:
                kept.append(("train", runs, model.ran_at))
            for mode, times, site in kept:
                at, trains_at = (tuple(resolve(*one) for one in each) for each in (site, called))
                untouched = mode == "eval" and model.is_untouched
                fields = name, mode, kinds, times, passes, model.last, at, trains_at, untouched
                found.append(ModeKept(*fields))
        return tuple(found)


class OwnBackwards:
    """The modules that have such a method, by the classes of those that run."""

    def __init__(self, stack: ExitStack, names: Names) -> None:
        """`names` will tell of each module that runs, until `stack` ends."""
        self._stack = stack
        names.on_root = self.meet
        self._found: dict[Any, FunctionType] = {}  # by class
        self._looked: set[type] = set()
        self._called: set[type] = set()
        self._computing: set[type] = set()  # whose forward does more than to pass its input on

    def meet(self, root: torch.nn.Module) -> None:
        """A module is about to run for the first time, and with it those that are in it."""
        for kind in {type(module) for module in root.modules()} - self._looked:
            self._looked.add(kind)
            self._put_around(kind)

    def look(self, calls: Iterable[Note]) -> None:
        """A forward pass was watched, which has made these."""
        for note in calls if self._found else ():
            passes_on = note.info.view or has(note.info.name, Trait.COPIES)
            running = None if passes_on or _is_neutral(note.user) else note.module
            while running is not None:
                self._computing.add(type(running.module))
                running = running.outer

    def _put_around(self, kind: type) -> None:
        owner: Any = next((one for one in kind.__mro__ if "backward" in vars(one)), None)
        written = vars(owner)["backward"] if owner is not None else None
        own = written.__func__ if isinstance(written, staticmethod) else written
        if not isinstance(own, FunctionType) or kind_of(own.__code__) != USER:
            return
        if any(one.f_code is own.__code__ for one in user_frames(sys._getframe(1))):
            return  # it runs, and calls what trains

        def backward(*args: Any, **kwargs: Any) -> Any:
            self._called.add(kind)
            return own(*args, **kwargs)

        self._found[kind] = own
        stand_in(self._stack, owner, "backward", backward)

    def facts(self) -> tuple[OwnBackward, ...]:
        """Those that nobody has called."""
        return tuple(
            OwnBackward(
                kind.__name__,
                head(own.__code__),
                head(getattr(kind.forward, "__code__", None)),
                returned(kind.forward, 0),
                kind not in self._computing,
            )
            for kind, own in self._found.items()
            if kind not in self._called
        )


def _is_neutral(user: Site) -> bool:
    """Whether what is written there gives its operand as it is: `x * 1.0`, `x + 0`."""
    source, node = written_at(*user[0]) if user else (None, None)
    if source is None:
        return False
    op = spelled(source, node)
    given = op.positional[op.name in ("div", "sub") :]
    numbers = [one.value for one in given if isinstance(one, ast.Constant)]
    return bool(numbers) and numbers == [_NEUTRAL.get(op.name)]
