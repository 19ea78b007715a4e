"""What is refused the second time: a gradient to be differentiated through a backward that has no
derivative, and the forward of a checkpoint that computes other tensors."""

import ast
import re
from types import CodeType
from typing import Any

from torch.autograd.function import once_differentiable

from gradscope.facts import Location, refusals
from gradscope.ops.traits import key
from gradscope.record.definitions import decorated_at, span, written_at
from gradscope.record.graph import function_name
from gradscope.record.refusals.exceptions import Raised
from gradscope.record.stand_ins import links

# What torch calls it: "derivative for aten::_ctc_loss_backward is not implemented", and "the
# derivative for '_cdist_backward' is not implemented" (VariableType and FunctionsManual.cpp).
_OP = re.compile(r"derivative for (?:aten::|')(\w+?)(?:_backward|_grad)?'? is not")
_ONCE = once_differentiable(lambda ctx, *grads: None).__code__
_CHECKPOINTS = frozenset(
    f"torch.utils.checkpoint.{name}" for name in ("checkpoint", "checkpoint_sequential")
)
_MOST_ASKED = 256  # nodes of the graph, the youngest first: backward meets these first


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


def computed_again(raised: Raised) -> refusals.ComputedAgain:
    """By `checkpoint`."""
    running = (one.tb_frame.f_locals for one in links(raised.error.__traceback__))
    differ = [one["nb_meta_different"][0] for one in running if one.get("nb_meta_different")]
    before, after = (tuple(one["shape"]) for one in differ[-1][1:]) if differ else (None, None)
    return refusals.ComputedAgain(
        **raised.at, location=_called_at(raised), before=before, after=after
    )


def _called_at(raised: Raised) -> Location | None:
    """The call of `checkpoint` through which the youngest nodes were made that have one."""
    for node in raised.youngest_first[:_MOST_ASKED]:
        note = raised.context.call_of_node(node)
        for code, instruction in note.user if note is not None else ():
            source, call = written_at(code, instruction)
            if source is not None and isinstance(call, ast.Call):
                if source.names.dotted(call.func) in _CHECKPOINTS:
                    return span(code, call)
    return None
