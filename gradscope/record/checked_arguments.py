"""What code that checks its arguments, and raises by itself, refused: a distribution a parameter, a
normalisation a batch of one, a layer an operand of another dtype."""

import inspect
import math
from types import CodeType, FrameType

import torch
from torch.distributions import Distribution, constraints

from gradscope.facts import Asymmetric, Call, OutOfDomain, Raised, SingleItem
from gradscope.facts.refusals import Objected
from gradscope.record.census import first_of, unravel
from gradscope.record.context import RunContext
from gradscope.record.events.measure import operand
from gradscope.record.mixed import mixed_in_layer
from gradscope.record.sites import USER, kind_of, resolve
from gradscope.record.stand_ins import links

_CHECK = Distribution.__init__.__code__
_SYMMETRIC = type(constraints.symmetric)  # and what is definite
_COUNTS: frozenset[CodeType] = frozenset(
    code
    for name in ("_verify_batch_size", "_verify_spatial_size")
    if (code := getattr(getattr(torch.nn.functional, name, None), "__code__", None)) is not None
)
_Frame = tuple[FrameType, int]  # with the instruction that it is at


def refused_by_check(error: BaseException, context: RunContext) -> Raised | None:
    """What raised an exception that ended the program, if that was one of them."""
    trail = [(one.tb_frame, one.tb_lasti) for one in links(error.__traceback__)]
    users = [at for at, (frame, _) in enumerate(trail) if kind_of(frame.f_code) == USER]
    if len(trail) < 2 or not users:
        return None
    if trail[-1][0].f_code in _COUNTS:
        return _single(trail, trail[users[-1]], context)
    checking = next((frame for frame, _ in trail if frame.f_code is _CHECK), None)
    if checking is not None:
        return _parameter(checking, trail, users[-1], context)
    return _mixed(trail, trail[users[-1]], context) if isinstance(error, RuntimeError) else None


def _single(trail: list[_Frame], user: _Frame, context: RunContext) -> Raised | None:
    given, frame = trail[-2][0].f_locals.get("input"), user[0]
    if not isinstance(given, torch.Tensor):
        return None
    # What a layer has made has a graph in training; the program's own data never has.
    is_data = any(one is given for one in frame.f_locals.values())
    why = SingleItem(tuple(given.shape), given.requires_grad or is_data)
    return _refused(trail[-2][0].f_code.co_name, user, "input", given, why, context)


def _mixed(trail: list[_Frame], user: _Frame, context: RunContext) -> Raised | None:
    inner = trail[-1][0]
    why = mixed_in_layer(inner)
    if why is None:
        return None
    kind = type(inner.f_locals.get("self")).__name__.lower()
    return _refused(kind, user, why.role, inner.f_locals[why.role], why, context)


def _parameter(
    checking: FrameType, trail: list[_Frame], user: int, context: RunContext
) -> Raised | None:
    scope = checking.f_locals
    value, constraint, role = scope.get("value"), scope.get("constraint"), scope.get("param")
    constraint = getattr(constraint, "base_constraint", constraint)  # of each element
    if not isinstance(value, torch.Tensor) or not bool(value.isfinite().all()):
        return None  # NaN has a birth of its own
    assert constraint is not None and isinstance(role, str)
    kind, (frame, instruction) = type(scope["self"]), trail[user]
    made = trail[user + 1][0].f_locals.get("self")  # a Beta makes a Dirichlet
    names = list(inspect.signature(kind).parameters) if type(made) is kind else []
    position = names.index(role) if role in names else None
    if isinstance(constraint, _SYMMETRIC):
        if value.dim() < 2 or value.shape[-1] != value.shape[-2]:
            return None  # it was refused for that
        apart = ~torch.isclose(value, value.mT, atol=1e-6)  # as that asks itself
        if not bool(apart.any()):
            return None
        most = float((value - value.mT).abs().max())
        uneven = Asymmetric(role, position, kind.__name__, most, int(apart.sum()), apart.numel())
        return _refused(kind.__name__, trail[user], role, value, uneven, context)
    bound = getattr(constraint, "lower_bound", None)
    if not isinstance(bound, int | float):
        return None
    why = OutOfDomain(
        role,
        kind.__name__,
        resolve(frame.f_code, instruction),
        position,
        *outside(~constraint.check(value), value),
        low=float(bound),
        high=float(getattr(constraint, "upper_bound", math.inf)),
        strict=isinstance(constraint, constraints.greater_than),
    )
    given = operand(role, value, context, index=why.index, shape=tuple(value.shape))
    call = maker(value, why.index, context) or Call(why.kind, location=why.place)
    return Raised(context.step, call, (given,), why)


def _refused(
    kind: str, user: _Frame, role: str, given: torch.Tensor, why: Objected, context: RunContext
) -> Raised:
    frame, instruction = user
    call = Call(kind, location=resolve(frame.f_code, instruction))
    return Raised(context.step, call, (operand(role, given, context, frame=frame),), why)


def maker(value: torch.Tensor, index: tuple[int, ...], context: RunContext) -> Call | None:
    """The call that made what a distribution was given, and has expanded or stacked."""
    node = value.grad_fn
    call = context.call(node)
    while node is not None and call is not None and call.inner is not None:
        if not call.view and call.op != "stack":
            break
        parts = node.next_functions
        node = parts[index[-1] if len(parts) > 1 else 0][0]
        call = context.call(node)
    return call


def outside(bad: torch.Tensor, values: torch.Tensor) -> tuple[float, tuple[int, ...], int, int]:
    """The first value that is, where it is, how many are, of how many."""
    first = first_of(bad)
    value = values.reshape(-1)[first].item()
    return value, unravel(first, tuple(values.shape)), int(bad.sum()), bad.numel()
