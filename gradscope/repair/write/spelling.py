"""What can be written at a culprit: an operand, and the templates of the op table."""

import ast
import math

from gradscope.ops import Edge
from gradscope.ops.dtypes import Margin
from gradscope.repair.write.culprit import Culprit
from gradscope.source.arguments import called, draws
from gradscope.source.tree import parts

_TAKES_OUT = frozenset("next pop popitem popleft read readline recv send".split())
_NUMBERS = frozenset(("abs", "float", "int", "len", "max", "min"))  # Python's own
# What moves elements, and leaves their values as they are.
MOVES = frozenset(
    "contiguous diag diagonal expand flatten flip gather index_select masked_select movedim narrow"
    " permute repeat repeat_interleave reshape roll select squeeze swapaxes t take_along_dim"
    " transpose unsqueeze view".split()
)
LONGEST_TWICE = 120  # characters of an operand that a condition may repeat


def operand_of(culprit: Culprit, edge: Edge) -> ast.expr | None:
    node = culprit.operands.get(edge.argument)
    if node is None and edge.argument in ("A", "input"):  # what other schemas call self
        node = culprit.operands.get("self")
    if isinstance(culprit.node, ast.AugAssign) and node is culprit.node.target:
        return None
    if node is not None and node is culprit.overwritten and not can_repeat(culprit, node):
        return None
    return None if isinstance(node, ast.Constant) else node


def on_edges(culprit: Culprit) -> list[tuple[Edge, ast.expr]]:
    """The edges that the operands are on, each with the operand that is written for it."""
    found = ((edge, operand_of(culprit, edge)) for edge in culprit.edges())
    return [(edge, node) for edge, node in found if node is not None]


def can_repeat(culprit: Culprit, node: ast.expr) -> bool:
    """Whether an operand may be written twice: short, and evaluating it again changes nothing."""
    if len(culprit.source.of(node)) > LONGEST_TWICE:
        return False
    return all(_is_pure(culprit, part) for part in parts(node, ast.Call))


def _is_pure(culprit: Culprit, call: ast.Call) -> bool:
    """A torch function or a method that neither draws random numbers nor writes in place. Whether
    the program's own methods change anything, nothing tells; those that take something out of
    Python's containers and files have these names."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return False
    name = called(call)
    if isinstance(call.func, ast.Name) and name in _NUMBERS:
        return name not in culprit.source.nodes.scope(call).owner(name).bindings
    is_torch = culprit.dotted(call).startswith("torch.") or isinstance(call.func, ast.Attribute)
    is_pure = not (name.endswith("_") or name in _TAKES_OUT or draws(culprit.source, call))
    return is_torch and is_pure


def is_count(culprit: Culprit, edge: Edge) -> bool:
    """Whether what is divided by is a whole number that the program counted."""
    if edge.cure.margin is not Margin.DENOMINATOR:
        return False
    given = (one for one in culprit.finding.tensors if one.role == edge.argument)
    return any(one.dtype.startswith(("int", "uint")) and (one.min or 0) >= 0 for one in given)


def infinity(culprit: Culprit, node: ast.expr) -> float | None:
    """The infinite constant that an expression writes; None of any other."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = infinity(culprit, inner)
            return None if value is None else -value
        case ast.Call(func=ast.Name("float"), args=[ast.Constant(str(text))]):
            written = text.strip().lower().replace("infinity", "inf")
            return {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf}.get(written)
    is_constant = culprit.names.dotted(node) in ("math.inf", "numpy.inf", "torch.inf")
    return math.inf if is_constant else None


def filled(
    culprit: Culprit, edge: Edge, template: str, node: ast.expr, eps: float | None = None
) -> str | None:
    """A template of the op table with the operands' source in it; None where one is not written.
    Its `eps` is the table's own, unless said otherwise."""
    if template.count("{x}") > 1 and not can_repeat(culprit, node):
        return None
    texts = {role: culprit.text(part) for role, part in culprit.operands.items()}
    usual = "1" if is_count(culprit, edge) else culprit.eps(edge)
    texts |= {"x": culprit.text(node), "eps": usual if eps is None else f"{eps:g}"}
    try:
        return culprit.torch(template).format(**texts)
    except (KeyError, IndexError):
        return None
