"""A gradient that was to be differentiated, through a backward that has no derivative."""

import re
from types import CodeType
from typing import Any

from torch.autograd.function import once_differentiable

from gradscope.facts import refusals
from gradscope.ops.traits import key
from gradscope.record.definitions import decorated_at
from gradscope.record.graph import function_name
from gradscope.record.refusals.exceptions import Raised

# What torch calls it: "derivative for aten::_ctc_loss_backward is not implemented", and "the
# derivative for '_cdist_backward' is not implemented" (VariableType and FunctionsManual.cpp).
_OP = re.compile(r"derivative for (?:aten::|')(\w+?)(?:_backward|_grad)?'? is not")
_ONCE = once_differentiable(lambda ctx, *grads: None).__code__


def of_op(raised: Raised) -> refusals.AnyRefusal | None:
    found = _OP.search(str(raised.error))
    if found is None:
        return None
    calls = (call for call in map(raised.context.call, raised.nodes) if call is not None)
    made = next((call for call in calls if key(call.op) == key(found[1])), None)
    return refusals.NotTwice(**raised.at, op=made.op if made is not None else found[1], made=made)


def of_function(raised: Raised) -> refusals.AnyRefusal | None:
    """Which of several it was, the node that raises does not tell."""
    nodes = {getattr(node, "_forward_cls", None): node for node in raised.nodes}
    once = {
        one: code
        for one in nodes
        if one is not None and (code := _marked(one.backward)) is not None
    }
    made = (raised.context.call(nodes[one]) for one in once)
    marks = (decorated_at(code, "once_differentiable") for code in once.values())
    return refusals.NotTwice(
        **raised.at,
        made=next(filter(None, made), None),
        functions=tuple(map(function_name, once)),
        marks=tuple(filter(None, marks)),
    )


def _marked(backward: Any) -> CodeType | None:
    """The code of a backward, if it is marked to be differentiated once."""
    is_marked = getattr(backward, "__code__", None) is _ONCE
    return getattr(backward.__wrapped__, "__code__", None) if is_marked else None
