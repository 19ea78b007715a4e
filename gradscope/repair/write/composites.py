"""The composite expressions that have a stable form, beside those of `logs`."""

import ast
from collections.abc import Callable

from gradscope.dataclass import dataclass
from gradscope.facts import requests as ask
from gradscope.repair.write import logs
from gradscope.repair.write.reading import Reading, atom, factor
from gradscope.repair.write.spelling import LONGEST_TWICE
from gradscope.source.arguments import Spelled, canonical, spelled

_TERMS = 3  # sums, and their attribute or sign, between a logarithm and its factor


@dataclass(frozen=True, slots=True)
class Form:
    """A composite expression. `ends` are the ops that it may end in, `ops` all that it is made of.

    `write` gives the stable form of an expression that ends so, None where it is another one.
    """

    write: Callable[[Reading, ast.expr], str | None]
    ends: frozenset[str]
    ops: frozenset[str]


def softmax(read: Reading, node: ast.expr) -> str | None:
    """w / w.sum(dim, keepdim=True) of weights w that are exponentials, where each meets the sum of
    its own row. A factor that is 0, as a mask is, takes an element out of the row."""
    found = read.op(node, "div")
    total = read.op(found.positional[1], "sum") if found and len(found.positional) == 2 else None
    if not found or not total or not read.same(found.positional[0], total.positional[0]):
        return None
    if (z := logs.log_of(read, found.positional[0])) is None:
        return None
    dim = read.dim(total)
    if dim is None:
        return (
            None
            if read.has_plain_log
            else f"torch.softmax({atom(z)}.flatten(), 0).view_as({atom(z)})"
        )
    aligned = dim == "0" or "keepdim" in total.keywords
    if aligned and dim.startswith(("(", "[")):  # `softmax` goes along one dimension
        return f"torch.exp({z} - torch.logsumexp({z}, {read.rest(total)}))"
    rest = f"dim={dim}" if {"dim", "axis"} & {*total.keywords} else dim
    return read.call("softmax", z, rest) if aligned else None


def _sigmoid(read: Reading, node: ast.expr) -> str | None:
    z = logits(read, node)
    return f"torch.sigmoid({z})" if z is not None else None


def logits(read: Reading, node: ast.expr) -> str | None:
    """z of 1 / (1 + exp(-z)), and of exp(z) / (1 + exp(z))."""
    found = read.op(node, "div")
    if not found or len(found.positional) != 2:
        return None
    above, below = found.positional
    total = read.op(below, "add")
    if not total or len(total.positional) != 2:
        return None
    parts = [part for part in total.positional if read.number(part) != 1]
    operand = read.argument(parts[0], "exp") if len(parts) == 1 else None
    if operand is None:
        return None
    if read.number(above) == 1:
        negated = read.argument(operand, "neg")
        return read.text(negated) if negated is not None else f"-{atom(read.text(operand))}"
    numerator = read.argument(above, "exp")
    same = numerator is not None and read.same(numerator, operand)
    return read.text(operand) if same else None


def _tanh(read: Reading, node: ast.expr) -> str | None:
    """(exp(z) - exp(-z)) / (exp(z) + exp(-z))."""
    found = read.op(node, "div")
    if not found:
        return None
    sides = [read.op(side, op) for side, op in zip(found.positional, ("sub", "add"), strict=False)]
    if len(sides) != 2 or not all(one and len(one.positional) == 2 for one in sides):
        return None
    exponents = [read.argument(one, "exp") for side in sides if side for one in side.positional]
    if None in exponents:
        return None
    z, opposite, *below = filter(None, exponents)
    negated = read.argument(opposite, "neg")
    if negated is None or not read.same(z, negated):
        return None
    is_swapped = read.same(below[0], opposite)
    z_again, opposite_again = below[::-1] if is_swapped else below
    is_tanh = read.same(z, z_again) and read.same(opposite, opposite_again)
    return read.call("tanh", read.text(z)) if is_tanh else None


def _quotient(read: Reading, node: ast.expr) -> str | None:
    """A quotient of two that are exponentials is the exponential of a difference."""
    found = read.op(node, "div")
    if not found or any(logs.log_of(read, side) is None for side in found.positional[:2]):
        return None
    # A factor may be 0 where its exponential is not, as a mask is.
    difference = logs.log_of(read, node)
    return None if read.has_plain_log else f"torch.exp({difference})"


def _bessel_quotient(read: Reading, node: ast.expr) -> str | None:
    """i1(z) / i0(z): each without its factor exp(|z|), which the quotient has not."""
    found = read.op(node, "div")
    parts = [read.op(side, "i0", "i1") for side in found.positional] if found else []
    if len(parts) != 2 or not all(one and len(one.positional) == 1 for one in parts):
        return None
    above, below = filter(None, parts)
    if not read.same(above.positional[0], below.positional[0]):
        return None
    z = read.text(above.positional[0])
    return f"torch.special.{above.name}e({z}) / torch.special.{below.name}e({z})"


def _weighted_mean(read: Reading, node: ast.expr) -> str | None:
    """(w @ y) / w.sum(1) and (w * y).sum(1) / w.sum(1) of weights w that are exponentials."""
    found = read.op(node, "div")
    total = read.op(found.positional[1], "sum") if found else None
    dim = read.dim(total) if total else None
    if not found or not total or dim is None:
        return None
    above, weights = read.meaning(found.positional[0]), total.positional[0]
    summed = read.op(above, "sum")
    product = read.op(summed.positional[0], "mul") if summed else read.op(above, "mm")
    if not product or not read.same(product.positional[0], weights):
        return None
    z, values = logs.log_of(read, weights), product.positional[1]
    is_over_rows = read.dim(summed) == dim if summed else dim in ("1", "-1")
    if z is None or read.has_plain_log or not is_over_rows:
        return None
    softmax = f"torch.softmax({z}, dim={dim})"
    if summed:
        return f"({softmax} * {read.factor(values)}).sum({read.rest(summed)})"
    return f"{softmax} @ {read.factor(values)}"


def _power_of_product(read: Reading, node: ast.expr) -> str | None:
    """prod(x) ** (1 / n), the geometric mean."""
    found = read.op(node, "pow", "sqrt")
    if not found or not read.op(found.positional[0], "prod"):
        return None
    return f"torch.exp({logs.log_of(read, node)})"


def _cross_entropy_with_logits(read: Reading, node: ast.expr) -> str | None:
    found = read.op(node, "binary_cross_entropy")
    operand = found and read.argument(found.positional[0], "sigmoid")
    if not found or not operand:
        return None
    name = "torch.nn.functional.binary_cross_entropy_with_logits"
    return f"{name}({read.text(operand)}, {read.rest(found)})"


def _log_of_absolute_determinant(read: Reading, node: ast.expr) -> str | None:
    """logdet(z) where the determinant is negative; where it is 0, what breaks is `slogdet`."""
    found = read.op(node, "logdet")
    if not found or canonical(read.culprit.finding.op) != "logdet":
        return None
    return f"torch.linalg.slogdet({read.text(found.positional[0])}).logabsdet"


def _xlogy(read: Reading, node: ast.expr) -> str | None:
    found = read.op(node, "xlogy")
    if not found or (logarithm := logs.log_of(read, found.positional[1])) is None:
        return None
    return f"{factor(read.text(found.positional[0]))} * {atom(logarithm)}"


def _x_log_x(read: Reading, node: ast.expr) -> str | None:
    """x * log(x) and x * (log(x) - y) are 0 where x is 0, and so is their slope's share of it.
    Where the program hides that element itself, its own mask says what `log` is to be given."""
    requests = (fix.request for fix in read.culprit.finding.fixes)
    if any(isinstance(one, ask.HarmlessOperand) and one.hidden for one in requests):
        return None
    operand = read.argument(node, "log")
    around: ast.AST = node
    for _ in range(_TERMS):
        inner, above = around, read.culprit.source.parents.get(around)
        if above is None:  # the statement stands in no function
            return None
        around = above
        product = spelled(read.culprit.source, around)
        if product is not None and product.name == "mul" and operand is not None:
            x = read.text(operand)
            is_its_own = any(read.same(operand, one) for one in product.positional)
            safe = f"torch.where({x} > 0, {x}, 1.0)"
            short = is_its_own and len(x) <= LONGEST_TWICE
            return read.call("log", safe) if short and inner in product.positional else None
    return None


def _norm(read: Reading, node: ast.expr) -> str | None:
    """sqrt(z ** 2) and sqrt((z ** 2).sum(dim)), whose slope at 0 is infinite; that of `abs` and of
    PyTorch's norm is 0."""
    inner = read.argument(node, "sqrt")
    if (power := read.op(node, "pow")) and read.number(power.positional[-1]) == 0.5:
        inner = power.positional[0]
    if inner is not None and (single := read.squared(inner)) is not None:
        return f"{atom(read.text(single))}.abs()"
    found = inner is not None and read.op(inner, "sum")
    squared = found and read.squared(found.positional[0])
    dim = read.dim(found) if found else None
    if not found or not squared or not dim:
        return None
    keep = ", keepdim=True" if "keepdim" in found.keywords else ""
    return f"torch.linalg.vector_norm({read.text(squared)}, dim={dim}{keep})"


def _normalize(read: Reading, node: ast.expr) -> str | None:
    """z / z.norm(dim=d, keepdim=True)."""
    found = read.op(node, "div")
    length = read.op(found.positional[1], "norm") if found else None
    if not found or not length or not read.same(found.positional[0], length.positional[0]):
        return None
    dim = _euclidean(read, length)
    if dim is None or "keepdim" not in length.keywords:
        return None
    return f"torch.nn.functional.normalize({read.text(length.positional[0])}, dim={dim})"


def _cosine(read: Reading, node: ast.expr) -> str | None:
    """(a * b).sum(d) / (a.norm(dim=d) * b.norm(dim=d))."""
    found = read.op(node, "div")
    total = read.op(found.positional[0], "sum") if found else None
    product = read.op(total.positional[0], "mul") if total else None
    lengths = read.op(found.positional[1], "mul") if found else None
    if not total or not product or not lengths:
        return None
    norms = [read.op(part, "norm") for part in lengths.positional]
    dim, vectors = read.dim(total), product.positional
    for one, vector in zip(norms, vectors, strict=True):
        if not one or not read.same(one.positional[0], vector) or _euclidean(read, one) != dim:
            return None
    keeps = "keepdim" in total.keywords
    if dim is None or keeps or any("keepdim" in one.keywords for one in norms if one):
        return None
    texts = ", ".join(map(read.text, vectors))
    return f"torch.nn.functional.cosine_similarity({texts}, dim={dim})"


def _euclidean(read: Reading, norm: Spelled) -> str | None:
    """The dimension of a norm of order 2, as text."""
    order = norm.keywords.get("p") or norm.keywords.get("ord")
    rest = norm.positional[1:]
    if order is None and rest:
        order, rest = rest[0], rest[1:]
    if order is not None and read.number(order) != 2:
        return None
    node = norm.keywords.get("dim") or (rest[0] if rest else None)
    return read.text(node) if node is not None else None


def _form(write: Callable[[Reading, ast.expr], str | None], ends: str, made_of: str = "") -> Form:
    return Form(write, frozenset(ends.split()), frozenset(f"{ends} {made_of}".split()))


# The first that an expression fits is written.
FORMS: tuple[Form, ...] = (
    Form(logs.logarithm, frozenset({"log", "log1p"}), logs.OPS),
    Form(_xlogy, frozenset({"xlogy"}), logs.OPS | {"xlogy"}),
    _form(_x_log_x, "log"),
    Form(softmax, frozenset({"div"}), logs.OPS),
    _form(_sigmoid, "div", "add exp neg"),
    _form(_tanh, "div", "add sub exp neg"),
    _form(_normalize, "div", "norm"),
    _form(_cosine, "div", "norm mul"),
    Form(_weighted_mean, frozenset({"div"}), logs.OPS | {"mm"}),
    _form(_bessel_quotient, "div", "i0 i1"),
    Form(_quotient, frozenset({"div"}), logs.OPS),
    _form(_power_of_product, "pow sqrt", "prod"),
    _form(_norm, "sqrt pow", "sum mul pow"),
    _form(_cross_entropy_with_logits, "binary_cross_entropy", "sigmoid"),
    _form(_log_of_absolute_determinant, "logdet"),
)
