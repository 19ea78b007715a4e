"""What code that checks its arguments, and raises by itself, refused: a distribution a parameter, a
normalisation a batch of one, a layer an operand of another dtype. And what an op refused for that.
"""

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch.distributions import Distribution, constraints
from torch.utils._pytree import tree_map_only

from gradscope.facts import Asymmetric, Call, MixedDtypes, OutOfDomain, Raised, SingleItem
from gradscope.facts.refusals import Objected
from gradscope.record.census import first_of, unravel
from gradscope.record.context import RunContext
from gradscope.record.events.measure import operand
from gradscope.record.finite import dtype_of
from gradscope.record.schema import OpInfo
from gradscope.record.sites import USER, kind_of, resolve
from gradscope.record.stand_ins import links

_CHECK = Distribution.__init__.__code__
_SYMMETRIC = type(constraints.symmetric)  # and what is definite
_COUNTS: frozenset[CodeType] = frozenset(
    code
    for name in ("_verify_batch_size", "_verify_spatial_size")
    if (code := getattr(getattr(torch.nn.functional, name, None), "__code__", None)) is not None
)
_LAYERS = str(Path(torch.nn.__file__).parent)
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
    why = _mixed_in_layer(inner)
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


def mixed_dtypes(
    info: OpInfo, args: Any, kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> MixedDtypes | None:
    """The operand that is not of the dtype of what is trained, where the op takes it in that one:
    tried on the operands themselves, without a graph."""
    op = getattr(getattr(torch.ops.aten, info.name, None), info.overload or "default", None)
    return _mixed_in(op, args, kwargs, given) if op is not None and not info.written else None


def _mixed_in_layer(frame: FrameType) -> MixedDtypes | None:
    """The same of a layer's own function, as of a convolution, which refuses before any op runs."""
    code, scope = frame.f_code, frame.f_locals
    is_forward = code.co_filename.startswith(_LAYERS) and code.co_name.endswith("forward")
    if not is_forward or code.co_freevars or code.co_flags & inspect.CO_VARARGS:
        return None  # another function may do more than compute
    given = {name: scope.get(name) for name in code.co_varnames[: code.co_argcount]}
    return _mixed_in(FunctionType(code, frame.f_globals), (*given.values(),), {}, given)


def _mixed_in(
    function: Any, args: Any, kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> MixedDtypes | None:
    tensors = {role: one for role, one in given.items() if isinstance(one, torch.Tensor)}
    trained = {one.dtype: dtype_of(one) for one in tensors.values() if _is_trained(one)}
    if len(trained) != 1:
        return None
    ((wanted, called),) = trained.items()
    odd = [role for role, one in tensors.items() if one.dtype != wanted]
    if not odd or not all(tensor.is_cpu for tensor in tensors.values()):
        return None
    cast = tree_map_only(torch.Tensor, lambda one: one.detach().to(wanted), (args, dict(kwargs)))
    try:
        with torch.no_grad():
            function(*cast[0], **cast[1])
    except Exception:  # it is something else as well
        return None
    return MixedDtypes(odd[0], dtype_of(tensors[odd[0]]), called)


def _is_trained(tensor: torch.Tensor) -> bool:
    is_leaf = isinstance(tensor, torch.nn.Parameter) or isinstance(tensor._base, torch.nn.Parameter)
    return is_leaf or tensor.requires_grad
