"""Checks each custom autograd.Function that the program calls, once for each signature."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from gradscope.facts import Ending, FunctionCheck, NotChecked, Symptom
from gradscope.record.context import RunContext
from gradscope.record.forking import FORKS, Answers, answers, random_state_kept
from gradscope.record.graph import function_name
from gradscope.record.held import has_peers
from gradscope.record.probes.calls import NoVerdict, first_rows, needs_grad
from gradscope.record.sites import Site, place_of
from gradscope.record.stand_ins import hide_from_dynamo
from gradscope.record.tracing import unobserved

MOST_SIGNATURES = 4  # of one class: batches of every length are no news
MOST_ELEMENTS = 1 << 22  # in all tensors of a call: more would make the program wait
SLICE = 1 << 19  # elements of the part of a larger call that is looked at
SECONDS_EACH = 10.0  # for the verdict of an experiment, and for what is looked for after it
SECONDS_ALL = 30.0
# The checks, of a part where all is too much, and what was left out, with why.
_Found = tuple[tuple[FunctionCheck, ...], str, str]
_OTHER_SHAPES = f" beyond its first {MOST_SIGNATURES} combinations of shapes"


class FunctionChecks:
    """Asked before each call of a Function. The experiment runs in a copy of the program, where
    the system can make one, so that nothing that forward does (count, print, draw) is done twice.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.found: list[FunctionCheck] = []
        self.not_checked: list[NotChecked] = []
        self._seen: set[object] = set()
        self._signatures: Counter[object] = Counter()
        self._spent = 0.0
        # Functions whose grad_output was looked at: the first step at which it was not all ones.
        self._came: dict[str, int | None] = {}

    def forget(self) -> None:
        """Which calls were looked at: the Functions may have changed."""
        self._seen.clear()
        self._signatures.clear()

    def wrong_before(self, step: int) -> bool:
        return any(check.verdict == "wrong" and check.step < step for check in self._told)

    def symptoms(self) -> tuple[Symptom, ...]:
        """The gradients that were found to be wrong."""
        wrong = (check.symptom for check in self._told if check.verdict == "wrong")
        return tuple(dict.fromkeys(wrong))

    def facts(self, ending: Ending) -> tuple[FunctionCheck, ...]:
        """A backward that raises is one that has ended the program: elsewhere it may be given what
        it needs by that alone."""
        return tuple(
            one for one in self._told if one.verdict != "raises" or _has_ended(one, ending)
        )

    @property
    def _told(self) -> Iterator[FunctionCheck]:
        for one in self.found:
            if one.verdict == "wrong" and one.holds_for_ones and one.name in self._came:
                shows = self._came[one.name]
                verdict, step = ("latent", 0) if shows is None else ("wrong", shows)
                one = replace(one, verdict=verdict, step=max(one.step, step))
            yield one

    def made(self, name: str, node: Any) -> None:
        """Looks at each gradient that comes in, where backward is right for ones alone."""
        if any(one.name == name and one.holds_for_ones for one in self.found):
            node.register_prehook(partial(self._comes, name))

    def _comes(self, name: str, gradients: tuple[Any, ...]) -> None:
        with unobserved():
            are_ones = all(one is None or bool((one == 1).all()) for one in gradients)
        if self._came.setdefault(name) is None and not are_ones:
            self._came[name] = self._context.step

    def left_out(self, ending: Ending) -> tuple[NotChecked, ...]:
        raising = (one for one in self.found if one.verdict == "raises")
        unknown = (
            NotChecked(f"the backward of `{one.name}`", one.reason)
            for one in raising
            if not _has_ended(one, ending)
        )
        return tuple(dict.fromkeys((*self.not_checked, *unknown)))

    def before(
        self,
        cls: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        apply: Callable[..., Any],
        site: Site,
    ) -> None:
        """`apply` is torch's own `Function.apply`, unbound."""
        name = (cls.__module__, cls.__qualname__)
        if not _is_checked(cls, args):
            return
        if hindrance := _hindrance(args):
            self._leave_out(cls, hindrance)
            return
        key = (name, tuple(_signature(arg) for arg in (*args, *kwargs.values())))
        if key in self._seen:
            return
        if self._signatures[name] >= MOST_SIGNATURES:
            self._leave_out(cls, "one example of each is checked", _OTHER_SHAPES)
            return
        self._seen.add(key)
        self._signatures[name] += 1
        if self._spent > SECONDS_ALL:
            self._leave_out(cls, f"{SECONDS_ALL:.0f} seconds were spent on others")
            return
        with self._context.experiment():
            checks = self._examined(cls, args, kwargs, apply)
        call = place_of(site)
        self.found += [replace(check, step=self._context.step, call=call) for check in checks]
        for check in checks:
            if check.verdict == "unknown":
                self._leave_out(cls, check.reason)

    def _leave_out(self, cls: Any, why: str, part: str = "", before: str = "") -> None:
        """Said once of a class."""
        one = NotChecked(f"{before}the backward of `{function_name(cls)}`{part}", why)
        if one not in self.not_checked:
            self.not_checked.append(one)

    def _examined(
        self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apply: Callable[..., Any]
    ) -> tuple[FunctionCheck, ...]:
        from torch.utils._python_dispatch import _disable_current_modes

        from gradscope.record.probes.experiment import examined

        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        elements = sum(tensor.numel() for tensor in tensors)
        most = f"at most {MOST_ELEMENTS / 1e6:.1f} million are checked"
        bound = f"{elements / 1e6:.1f} million elements; {most}" if elements > MOST_ELEMENTS else ""

        def work(why: str) -> Iterator[_Found]:
            part, beyond = args, ""
            try:
                with (
                    torch._C._EnableTorchFunction(),
                    _disable_current_modes(),
                    random_state_kept(),
                    torch.autocast("cpu", enabled=False),
                ):
                    if why:
                        part, rows, of = first_rows(cls, args, kwargs, apply, SLICE)
                        beyond = f" beyond the first {rows:,} of {of:,} rows"
                    for checks in examined(cls, part, kwargs, apply):
                        yield checks, beyond, why
            except Exception as fault:
                why_not = (
                    fault if isinstance(fault, NoVerdict) else f"{type(fault).__name__}: {fault}"
                )
                yield (), "", f"{why}, and {why_not}" if why else f"{why_not}"

        checks: tuple[FunctionCheck, ...] = ()
        beyond = ""
        if FORKS and all(tensor.is_cpu for tensor in tensors):
            late = f"no answer in {SECONDS_EACH:g} seconds, or its copy of the program died"
            found = self._apart(partial(work, bound))
            if found.last is None and not bound and elements > SLICE:
                found = self._apart(partial(work, late))
            checks, beyond, why = found.last or ((), "", late)
            if found.last and not found.is_complete:
                self._leave_out(cls, late, before="what would be right in ")
        elif bound:  # the program's memory may have no room for another forward
            why = bound
        elif any(callable(arg) and not isinstance(arg, torch.Tensor) for arg in args):
            why = "one of its arguments is a function: its backward may add to a model's gradients"
        else:
            started = time.monotonic()
            *_, (checks, beyond, why) = work(bound)
            self._spent += time.monotonic() - started
        if why:
            self._leave_out(cls, why, beyond)
        return checks

    def _apart(self, work: Callable[[], Iterator[_Found]]) -> Answers[_Found]:
        found = answers(work, SECONDS_EACH)
        self._spent += found.seconds
        return found


hide_from_dynamo(FunctionChecks.before)


def _has_ended(check: FunctionCheck, ending: Ending) -> bool:
    at, place = check.location, ending.location
    return at is not None and place is not None and str(at) == str(place)


def _is_checked(cls: Any, args: tuple[Any, ...]) -> bool:
    """Whether there is something to compare."""
    if cls.__module__.partition(".")[0] == "torch" or not torch.is_grad_enabled():
        return False
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if any(t.is_meta for t in tensors) or torch._C._are_functorch_transforms_active():
        return False
    return any(needs_grad(t) and t.numel() for t in tensors)


def _hindrance(args: tuple[Any, ...]) -> str:
    """Why there is no way to try it that does not harm the program; "" where there is one."""
    if has_peers() and torch.distributed.get_world_size() > 1:
        return "the program runs in several processes, and its forward may talk to the others"
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if any(t.is_sparse for t in tensors):
        return "one of its arguments is sparse"
    kinds = (type(t) for t in tensors if type(t) not in (torch.Tensor, torch.nn.Parameter))
    kind = next(kinds, None)
    return f"one of its arguments is a `{kind.__name__}`" if kind is not None else ""


def _signature(arg: Any) -> object:
    if isinstance(arg, torch.Tensor):
        return tuple(arg.shape), arg.dtype, arg.requires_grad
    return arg if isinstance(arg, int | float | str | bool | None) else type(arg)
