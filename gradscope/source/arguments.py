"""From an op's schema to the sub-expressions that a user wrote for it.

`x ** 0.5` gives `pow` its self and exponent, `v.sqrt()` and `torch.sqrt(v)` give `sqrt` its self,
`x /= y` gives `div` its self and other. Only spellings that name the op are mapped: for
`F.cosine_similarity(a, b)`, where a division inside broke, `a` is not the self of `div`.
"""

import ast
from collections.abc import Iterator, Mapping

from gradscope.dataclass import dataclass
from gradscope.source.text import Source
from gradscope.source.tree import Op, covers, last_name

# The positional arguments of an op by their schema names, where they are not (self, other).
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "addcdiv": ("self", "tensor1", "tensor2"),
    "addcmul": ("self", "tensor1", "tensor2"),
    "addmm": ("self", "mat1", "mat2"),
    "binary_cross_entropy": ("self", "target", "weight"),
    "cdist": ("x1", "x2", "p"),
    "clamp": ("self", "min", "max"),
    "cosine_similarity": ("x1", "x2", "dim", "eps"),
    "cross_entropy": ("self", "target", "weight"),
    "cumprod": ("self", "dim"),
    "fill": ("self", "value"),
    "full_like": ("self", "fill_value"),
    "kl_div": ("self", "target"),
    "lerp": ("self", "end", "weight"),
    "linear": ("self", "weight", "bias"),
    "log_softmax": ("self", "dim"),
    "logit": ("self", "eps"),
    "masked_fill": ("self", "mask", "value"),
    "masked_select": ("self", "mask"),
    "mean": ("self", "dim", "keepdim"),
    "mse_loss": ("self", "target"),
    "new_full": ("self", "size", "fill_value"),
    "nll_loss": ("self", "target", "weight"),
    "norm": ("self", "p", "dim", "keepdim"),
    "normalize": ("self", "p", "dim", "eps"),
    "pairwise_distance": ("x1", "x2", "p", "eps"),
    "pow": ("self", "exponent"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask"),
    "softmax": ("self", "dim"),
    "softplus": ("self", "beta", "threshold"),
    "std": ("self", "dim", "correction"),
    "sum": ("self", "dim", "keepdim"),
    "var": ("self", "dim", "correction"),
    "where": ("condition", "self", "other"),
}
METHODS: Mapping[str, tuple[str, ...]] = {"where": ("self", "condition", "other")}
KEYWORDS = {"axis": "dim", "input": "self", "ord": "p", "tensor": "self", "pred": "self"}

# Names that users write (and aten's internal names) for one op.
SAME: Mapping[str, str] = {
    "abs_": "abs", "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arctan2": "atan2", "arctanh": "atanh", "clamp_max": "clamp", "clamp_min": "clamp",
    "clip": "clamp", "divide": "div", "euclidean_dist": "cdist", "float_power": "pow",
    "inv": "inverse", "matmul": "mm", "bmm": "mm", "mv": "mm", "dot": "mm", "multiply": "mul",
    "native_layer_norm": "layer_norm", "square": "pow", "subtract": "sub", "rsub": "sub",
    "std_mean": "std", "true_divide": "div", "var_mean": "var", "vector_norm": "norm",
    "matrix_norm": "norm", "fix": "trunc",
}  # fmt: skip

BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
    ast.MatMult: "mm", ast.Mod: "remainder", ast.FloorDiv: "floor_divide",
}  # fmt: skip

# A spelling can run more ops than the one it is named after.
IMPLIES: Mapping[str, frozenset[str]] = {
    "div": frozenset({"reciprocal"}),  # 1 / x
    "std": frozenset({"var"}),
    "cross_entropy": frozenset({"log_softmax", "nll_loss", "nll_loss2d"}),
    "normalize": frozenset({"norm"}),
    "logdet": frozenset({"slogdet"}),
    "logsumexp": frozenset({"exp", "log"}),
}

_CHANGES = frozenset(("alpha", "rounding_mode"))

# What torch tags as random, and what is made of it, by the names that `canonical` gives.
DRAWS = frozenset(
    "alpha_dropout bernoulli cauchy dropout dropout1d dropout2d dropout3d exponential"
    " feature_alpha_dropout feature_dropout fused_dropout geometric gru gumbel_softmax"
    " log_normal lstm miopen_rnn multinomial normal poisson rand rand_like randint randint_like"
    " randn randn_like randperm rnn_relu rnn_tanh rrelu rrelu_with_noise sample rsample"
    " scaled_dot_product_attention standard_gamma uniform".split()
)


def canonical(op: str) -> str:
    """One name for the spellings of an op: `_linalg_svd`, `linalg.svd` and `svd` are `svd`."""
    name = op.rpartition(".")[2].strip("_")
    for prefix in ("linalg_", "special_", "safe_", "native_"):
        name = name.removeprefix(prefix) or name
    for suffix in ("_ex", "_forward", "_backward", "_for_cpu"):
        name = name.removesuffix(suffix) or name
    return SAME.get(name, name)


@dataclass(frozen=True, slots=True)
class Spelled:
    """One place where an op is written: its canonical name and its arguments in source order. False
    where none is: its name is empty then, and it has no arguments."""

    name: str
    positional: tuple[ast.expr, ...]
    keywords: Mapping[str, ast.expr]
    method: bool = False

    def __bool__(self) -> bool:
        return bool(self.name)

    @property
    def first(self) -> ast.expr | None:
        """The operand: what alone many ops are given."""
        return self.positional[0] if self.positional else None


_NOTHING = Spelled("", (), {})


def spelled(source: Source, node: ast.AST | None) -> Spelled:
    """The op that a node writes, if it writes one."""
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return Spelled(BINARY[type(node.op)], (node.left, node.right), {})
    if isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
        return Spelled(BINARY[type(node.op)], (node.target, node.value), {})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return Spelled("neg", (node.operand,), {})
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return _NOTHING
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    dotted = source.names.dotted(node.func)
    if dotted is not None and dotted.startswith("torch."):  # else: a tensor that was imported
        return Spelled(canonical(dotted), tuple(node.args), keywords)
    if isinstance(node.func, ast.Name):
        return Spelled(canonical(node.func.id), tuple(node.args), keywords)
    if isinstance(node.func, ast.Attribute):
        name, receiver = canonical(node.func.attr), _receiver(node)
        return Spelled(name, (*receiver, *node.args), keywords, method=bool(receiver))
    return _NOTHING


def plainly(source: Source, node: ast.AST | None) -> Spelled:
    """The op that a node writes, where it is told by name and operands alone: `add(a, b, alpha=2)`
    and a division that rounds are others."""
    found = spelled(source, node)
    return found if _CHANGES.isdisjoint(found.keywords) else _NOTHING


def called(call: ast.Call) -> str:
    """The last name of what is called: `SGD` of `torch.optim.SGD(...)`, `log` of `x.log()`."""
    return last_name(call.func)


def is_in_place(call: ast.Call) -> bool:
    """Whether torch's naming says that a call writes into what it is of: `x.log_()`."""
    name = called(call)
    return name.endswith("_") and not name.endswith("__")


def argument(call: ast.AST | None, name: str, position: int | None = None) -> ast.expr | None:
    """What a call is given by that name, else at a position; None also of what is no call."""
    if not isinstance(call, ast.Call):
        return None
    named = [key.value for key in call.keywords if key.arg == name]
    listed = call.args[position:] if position is not None else []
    return next(iter(named or listed), None)


def arguments_of(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """The argument of a call for each of the function's parameters."""
    given = (*call.args, *(key.value for key in call.keywords))
    named = ((parameter_of(function, call, one), one) for one in given)
    return {name: one for name, one in named if name is not None}


def defaults_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    """For each parameter of a function that may be left out what it is then; None for one that is
    given by its name, and has to be."""
    spec = function.args
    positional = reversed([*spec.posonlyargs, *spec.args])
    pairs = [
        *zip(positional, reversed(spec.defaults), strict=False),
        *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
    ]
    return {one.arg: value for one, value in pairs}


def _receiver(call: ast.Call) -> tuple[ast.expr, ...]:
    """The tensor that a method is called on; nothing for `self.softmax(x)`, a module of self."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    is_module = isinstance(receiver, ast.Name) and receiver.id == "self" and call.args
    return () if is_module else (receiver,)


def draws(source: Source, node: ast.AST) -> bool:
    """Whether a node writes a call that draws random numbers."""
    return spelled(source, node).name in DRAWS


def writes(source: Source, node: ast.AST, op: str) -> bool:
    """Whether a node is a spelling of an op."""
    name, wanted = spelled(source, node).name, canonical(op)
    return bool(name) and (name == wanted or wanted in IMPLIES.get(name, ()))


def operands(source: Source, node: ast.AST, op: str) -> dict[str, ast.expr]:
    """The sub-expression for each schema argument of an op that a node spells; else nothing."""
    found = spelled(source, node)
    if not writes(source, node, op):
        return {}
    if canonical(op) == "reciprocal":  # 1 / x runs reciprocal(x) and then a product
        return {"self": found.positional[-1]} if found.positional else {}
    roles = ARGUMENTS.get(found.name, ("self", "other"))
    if found.method:
        roles = METHODS.get(found.name, roles)
    mapped = dict(zip(roles, found.positional, strict=False))
    for keyword, value in found.keywords.items():
        mapped[KEYWORDS.get(keyword, keyword)] = value
    return mapped


def find(source: Source, line: int, op: str) -> Iterator[Op]:
    """The spellings of an op on a line, for call sites whose columns are not known."""
    for node in ast.walk(source.tree):
        if isinstance(node, Op) and covers(node, line) and writes(source, node, op):
            yield node


def parameter_of(function: ast.FunctionDef, call: ast.Call, node: ast.expr) -> str | None:
    """The parameter that gets an argument of a call."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    names = names[names[:1] == ["self"] :]
    for name, given in zip(names, call.args, strict=False):
        if given is node:
            return None if any(isinstance(one, ast.Starred) for one in call.args) else name
    return next((key.arg for key in call.keywords if key.value is node), None)
