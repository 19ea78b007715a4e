"""The composite expressions that have a stable form, beside those of `logs`."""

import ast
from collections.abc import Callable, Set
from dataclasses import replace

from gradscope.dataclass import dataclass
from gradscope.facts import requests as ask
from gradscope.repair.write import logs
from gradscope.repair.write.culprit import LONGEST_TWICE, can_repeat
from gradscope.repair.write.forms import fit, in_form, ops_of
from gradscope.repair.write.reading import Reading, atom, factor
from gradscope.source.arguments import canonical, spelled

_TERMS = 3  # sums, and their attribute or sign, between a logarithm and its factor


@dataclass(frozen=True, slots=True)
class Form:
    """A composite expression. `ends` are the ops that it may end in, `ops` all that it is made of.

    `write` gives the stable form of an expression that ends so, None where it is another one.
    `is_special`: it holds for some values, and the next form for the others.
    """

    write: Callable[[Reading, ast.expr], str | None]
    ends: Set[str]
    ops: Set[str]
    is_special: bool = False


def softmax(read: Reading, node: ast.expr) -> str | None:
    """w / w.sum(dim, keepdim=True) of weights w that are exponentials, where each meets the sum of
    its own row. A factor that is 0, as a mask is, takes an element out of the row."""
    whole, along = fit(read, "w / sum(v)", node), fit(read, "w / sum(v, dim=0)", node)
    parts = whole or along or fit(read, "w / sum(v, dim=d, keepdim=True)", node)
    z = _same_log(read, parts["w"], parts["v"]) if parts is not None else None
    if parts is None or z is None or (whole and read.has_plain_log):
        return None
    if whole:
        return f"torch.softmax({atom(z)}.flatten(), 0).view_as({atom(z)})"
    dim = "0" if along else read.text(parts["d"])
    if dim.startswith(("(", "[")):  # `softmax` goes along one dimension
        return f"torch.exp({z} - torch.logsumexp({z}, {dim}, keepdim=True))"
    return read.call("softmax", z, dim)


def _same_log(read: Reading, first: ast.expr, second: ast.expr) -> str | None:
    """The logarithm of two expressions that are the same."""
    found = logs.log_of(read, first), logs.log_of(read, second)
    return found[0] if found[0] == found[1] else None


_LOGITS = {
    "1 / (1 + exp(-z))": "{z}",
    "1 / (1 + exp(z))": "{z:negative}",
    "exp(z) / (1 + exp(z))": "{z}",
}


_SLOPE_OF_SIGMOID = "torch.sigmoid({z}) * torch.sigmoid({z:negative})"


def logits(read: Reading, node: ast.expr) -> str | None:
    """z of a sigmoid that is written out."""
    return in_form(read, _LOGITS, node)


def _quotient(read: Reading, node: ast.expr) -> str | None:
    """A quotient of two that are exponentials is the exponential of a difference."""
    found = read.op(node, "div")
    if not found or any(logs.log_of(read, side) is None for side in found.positional[:2]):
        return None
    # A factor may be 0 where its exponential is not, as a mask is.
    difference = logs.log_of(read, node)
    return None if read.has_plain_log else f"torch.exp({difference})"


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
    if not product:
        return None
    z, values = _same_log(read, product.positional[0], weights), product.positional[1]
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


def _one_less_a_power(read: Reading, node: ast.expr) -> str | None:
    """(1 - x ** y) ** z and log(1 - x ** y) where x ** y rounds to 1: of an x above 0, as one with
    an exponent that is no plain number is."""
    found = read.op(node, "pow", "sqrt", "log")
    parts = fit(read, "1 - x ** y", found.positional[0]) if found else None
    exponent = parts.get("y") if parts is not None else None
    if not found or parts is None or exponent is None or read.number(exponent) is not None:
        return None
    x, y = read.text(parts["x"]), read.factor(exponent)
    inner = f"-torch.expm1({y} * torch.log({x}))"
    if found.name == "pow":
        return f"({inner}) ** {atom(read.text(found.positional[1]))}"
    return f"torch.{found.name}({inner})"


def _angle(read: Reading, node: ast.expr) -> str | None:
    """atan(a / b) of an a that is not 0, where b is 0 and nowhere below it."""
    parts, values = fit(read, "atan(a / b)", node), read.culprit.values
    if parts is None or not (values.get("self") and values.get("other.min", -1.0) >= 0):
        return None
    return f"torch.atan2({read.text(parts['a'])}, {read.text(parts['b'])})"


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
        if product.name == "mul" and operand is not None:
            x = read.text(operand)
            is_its_own = any(read.same(operand, one) for one in product.positional)
            safe = f"torch.where({x} > 0, {x}, 1.0)"
            short = is_its_own and len(x) <= LONGEST_TWICE
            return read.call("log", safe) if short and inner in product.positional else None
    return None


def _product_before(read: Reading, node: ast.expr) -> str | None:
    """cumprod(x) / x, the product of all factors before each, also where one of them is 0."""
    parts = fit(read, "cumprod(x, dim=d) / x", node)
    along = _SLICES.get(read.text(parts["d"])) if parts is not None else None
    if parts is None or along is None or not can_repeat(read.culprit, parts["x"]):
        return None
    x, d = atom(read.text(parts["x"])), read.text(parts["d"])
    first, others = (f"{x}[{along}{part}]" for part in (":1", ":-1"))
    return f"torch.cat([torch.ones_like({first}), {others}], {d}).cumprod({d})"


def _form(write: Callable[[Reading, ast.expr], str | None], ends: str, made_of: str = "") -> Form:
    return Form(write, frozenset(ends.split()), frozenset(f"{ends} {made_of}".split()))


def _by_example(example: str, form: str) -> Form:
    ops = ops_of(example)
    return Form(lambda read, node: in_form(read, {example: form}, node), {*ops[:2]}, {*ops})


# All but the last, and the first, along a dimension.
_SLICES = {"-1": "..., ", "0": "", "1": ":, ", "2": ":, :, "}

# The chance of what came out: labels of 0 and 1 say which of the two.
_CHOSEN = _by_example(
    "log(sigmoid(z) * t + (1 - sigmoid(z)) * (1 - t))",
    "torch.nn.functional.logsigmoid({z:atom} * (2 * {t:atom} - 1))",
)

# What cancels to 0, or to less, where the mean is large beside the spread.
_ALONG = {"": "", ", dim=d": ", dim={d}", ", dim=d, keepdim=True": ", dim={d}, keepdim=True"}
_SPREADS = {
    f"mean(z ** 2{dim}) - mean(z{dim}) ** 2": f"({{z}}{along}, correction=0)"
    for dim, along in _ALONG.items()
}
# Where a part of the mean is taken alone, as in a loss that does not see the scale.
_MIXED = {
    f"mean(z ** 2{dim}) - f * mean(z{dim}) ** 2": (
        f"torch.var({{z}}{along}, correction=0) + (1 - {{f:term}}) * torch.mean({{z}}{along}) ** 2"
    )
    for dim, along in _ALONG.items()
}

# The first that an expression fits is written.
FORMS: tuple[Form, ...] = (
    replace(_CHOSEN, is_special=True),
    _by_example("log(sigmoid(z) / (1 - sigmoid(z)))", "{z}"),
    _by_example("log(sigmoid(z)) - log(1 - sigmoid(z))", "{z}"),
    Form(logs.logarithm, frozenset({"log", "log1p"}), logs.OPS),
    Form(_xlogy, frozenset({"xlogy"}), logs.OPS | {"xlogy"}),
    _form(_x_log_x, "log"),
    Form(softmax, frozenset({"div"}), logs.OPS),
    *(_by_example(example, f"torch.sigmoid({z})") for example, z in _LOGITS.items()),
    _by_example("exp(z) / (1 + exp(z)) ** 2", _SLOPE_OF_SIGMOID),
    _by_example("a * exp(z) / (1 + exp(z)) ** 2", f"{{a:factor}} * {_SLOPE_OF_SIGMOID}"),
    _by_example("(exp(z) - exp(-z)) / (exp(z) + exp(-z))", "tanh({z})"),
    _by_example("z / norm(z, dim=d, keepdim=True)", "torch.nn.functional.normalize({z}, dim={d})"),
    _by_example(
        "sum(a * b, dim=d) / (norm(a, dim=d) * norm(b, dim=d))",
        "torch.nn.functional.cosine_similarity({a}, {b}, dim={d})",
    ),
    Form(_weighted_mean, frozenset({"div"}), logs.OPS | {"mm"}),
    # Each without its factor exp(|z|), which the quotient has not.
    _by_example("i1(z) / i0(z)", "torch.special.i1e({z}) / torch.special.i0e({z})"),
    _by_example("i0(z) / i1(z)", "torch.special.i0e({z}) / torch.special.i1e({z})"),
    _form(_product_before, "div", "cumprod"),
    Form(_quotient, frozenset({"div"}), logs.OPS),
    _form(_power_of_product, "pow sqrt", "prod"),
    # Whose slope at 0 is infinite; that of PyTorch's norm, and of `abs`, is 0.
    _by_example("sqrt(z ** 2)", "{z:atom}.abs()"),
    _by_example("sqrt(sum(z ** 2, dim=d))", "torch.linalg.vector_norm({z}, dim={d})"),
    _by_example(
        "sqrt(sum(z ** 2, dim=d, keepdim=True))",
        "torch.linalg.vector_norm({z}, dim={d}, keepdim=True)",
    ),
    *(
        _by_example(example.format(spread), form.format(spread=of))
        for spread, of in _SPREADS.items()
        for example, form in (
            ("sqrt({})", "torch.std{spread}"),
            ("sqrt({} + eps)", "torch.sqrt(torch.var{spread} + {{eps}})"),
            ("a / sqrt({})", "{{a:atom}} / torch.std{spread}"),
            ("log({})", "torch.log(torch.var{spread})"),
        )
    ),
    *(
        _by_example(f"sqrt({mixed}{eps})", f"torch.sqrt({of}{eps and ' + {eps}'})")
        for mixed, of in _MIXED.items()
        for eps in ("", " + eps")
    ),
    _form(_one_less_a_power, "pow sqrt log", "sub"),
    _form(_angle, "atan", "div"),
    _form(_cross_entropy_with_logits, "binary_cross_entropy", "sigmoid"),
    _form(_log_of_absolute_determinant, "logdet"),
)
