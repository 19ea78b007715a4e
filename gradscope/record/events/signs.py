"""Which parameter makes a value negative or 0, where one alone does: the way up the autograd graph,
through products, quotients and sums, as long as nothing else that they take is so."""

from collections.abc import Callable
from typing import Any

import torch

from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.finite import is_zero, numbers
from gradscope.record.graph import inputs, node_name, saved

_LEVELS = 12  # nodes: a density is a few factors

Test = Callable[[torch.Tensor], bool | None]


def parameter_behind(node: Any, context: RunContext, holds: Test) -> torch.Tensor | None:
    """The parameter by which `holds`, is_negative or is_zero, is true of what the node gave; None
    where there may be others, or where autograd has not saved the factors."""
    for _ in range(_LEVELS):
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            return variable if holds(variable) else None
        if node is None:
            return None
        node = _input(node, context, holds)
    return None


def _input(node: Any, context: RunContext, holds: Test) -> Any:
    """The node by which alone it can be true of the result of this one."""
    above = inputs(node)
    name = node_name(node)
    if has(name, Trait.MULTIPLIES | Trait.DIVIDES) and hasattr(type(node), "_saved_other"):
        factors = zip((saved(node, "self"), saved(node, "other")), node.next_functions, strict=True)
        may_be = [
            one
            for value, (one, _) in factors
            if (one is not None if value is None else holds(value))
        ]
        return _only(may_be)
    if has(name, Trait.SUMS | Trait.ADDS) and not has(name, Trait.SUBTRACTS):
        return _only([one for one in above if not has(node_name(one), Trait.POSITIVE)])
    call = context.call(node)
    moves = call is not None and (call.view or has(call.op, Trait.COPIES | Trait.CHOOSES))
    return _only(above) if moves or holds is is_zero else None


def is_negative(value: torch.Tensor) -> bool:
    """Whether an element is; of complex numbers none is."""
    seen = numbers(value)
    return seen is not None and bool((seen < 0).any())


def _only(nodes: list[Any]) -> Any:
    return nodes[0] if len(nodes) == 1 else None
