"""Operands of several dtypes, which an op has refused for that alone."""

from collections.abc import Mapping
from inspect import CO_VARARGS
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from gradscope.facts import MixedDtypes
from gradscope.record.finite import dtype_of
from gradscope.record.schema import OpInfo

_LAYERS = str(Path(torch.nn.__file__).parent)


def mixed_dtypes(
    info: OpInfo, args: Any, kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> MixedDtypes | None:
    """The operand that is not of the dtype of what is trained, where the op takes it in that one:
    tried on the operands themselves, without a graph."""
    op = getattr(getattr(torch.ops.aten, info.name, None), info.overload or "default", None)
    return _mixed(op, args, kwargs, given) if op is not None and not info.written else None


def mixed_in_layer(frame: FrameType) -> MixedDtypes | None:
    """The same of a layer's own function, as of a convolution, which refuses before any op runs."""
    code, scope = frame.f_code, frame.f_locals
    is_forward = code.co_filename.startswith(_LAYERS) and code.co_name.endswith("forward")
    if not is_forward or code.co_freevars or code.co_flags & CO_VARARGS:
        return None  # another function may do more than compute
    given = {name: scope.get(name) for name in code.co_varnames[: code.co_argcount]}
    return _mixed(FunctionType(code, frame.f_globals), (*given.values(),), {}, given)


def _mixed(
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
