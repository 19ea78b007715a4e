"""Edges that many ops have: an inf that is there already, and a result that leaves the dtype."""

from gradscope.ops.cures import FINITE, Cure
from gradscope.ops.edges import Edge, Holds, infinite_already, overflow, slope_too_large, undefined
from gradscope.ops.predicates import broke, has_infinity, slope_broke


def no_answer(argument: str, holds: Holds, says: str, *, cure: Cure = FINITE) -> Edge:
    """Arithmetic with inf whose value is undefined: inf - inf, 0 * inf, inf / inf."""
    return undefined(holds, says, cure, argument=argument, cause="inf-arithmetic")


def infinite_input(argument: str, holds: Holds, says: str, *, cure: Cure = FINITE) -> Edge:
    """An operand that is inf already: the value hides it, the slope has no answer for it."""
    return infinite_already(holds, says, cure, argument=argument)


def infinite_inputs(*operands: str, says: str) -> tuple[Edge, ...]:
    """The same of each of these operands, of ops that mix elements."""
    return tuple(infinite_input(one, has_infinity(one), says) for one in operands)


def value_overflow(*operands: str, what: str = "result") -> Edge:
    """Finite operands, and a result that is not: the dtype is too narrow for the true one."""
    holds = broke(*operands)
    return overflow(holds, f"the {what}", argument=operands[0], wider=True)


def slope_overflow(*operands: str, what: str) -> Edge:
    """Finite operands and a finite incoming gradient, and a gradient that leaves the dtype."""
    holds = slope_broke(*operands)
    return slope_too_large(holds, what, argument=operands[0], wider=True)


def gradient_overflow(*operands: str) -> Edge:
    """The slope is finite; its product with the incoming gradient is not."""
    return slope_overflow(*operands, what="the slope times the incoming gradient")
