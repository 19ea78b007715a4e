"""Expressions that people write, and the stable form of each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """An expression and the one that computes the same without the singularity.

    `stable` is a template: `{x}` is what the innermost function takes (the logits), `{dim}` the
    reduced dimension, `{target}` the other factor.
    """

    name: str
    written: str  # "log(softmax(x))"
    stable: str
    why: str


CROSS_ENTROPY = Pattern(
    "cross-entropy",
    "-(target * log(softmax(x))).sum()",
    "torch.nn.functional.cross_entropy({x}, {target})",
    "softmax rounds small probabilities to 0, whose log is -inf; cross_entropy never leaves the"
    " log domain",
)
BINARY_CROSS_ENTROPY = Pattern(
    "binary-cross-entropy",
    "-(y * log(sigmoid(x)) + (1 - y) * log(1 - sigmoid(x)))",
    "torch.nn.functional.binary_cross_entropy_with_logits({x}, {target})",
    "sigmoid rounds to exactly 0 or 1, and one of the two logs is -inf",
)
BINARY_CROSS_ENTROPY_OF_P = Pattern(
    "binary-cross-entropy",
    "-(y * log(p) + (1 - y) * log(1 - p))",
    "torch.nn.functional.binary_cross_entropy({x}, {target})",
    "at p = 0 or 1 one of the two logs is -inf; binary_cross_entropy bounds them at -100",
)
FOCAL = Pattern(
    "focal-loss",
    "-(1 - p) ** gamma * log(p)",
    "torch.nn.functional.logsigmoid({x})",
    "p rounds to exactly 0, whose log is -inf; take the log of p from the logits",
)
KL_DIVERGENCE = Pattern(
    "kl-divergence",
    "(p * (log(p) - log(q))).sum()",
    "torch.nn.functional.kl_div(torch.log_softmax({other}, {dim}), {x}, reduction='sum')",
    "both logs are -inf where a probability is 0; kl_div takes log q, and 0 log 0 as 0",
)
ENTROPY_OF_LOGITS = Pattern(
    "entropy",
    "-(p * log(p)).sum(), p = softmax(x)",
    "-(torch.softmax({x}, {dim}) * torch.log_softmax({x}, {dim})).sum({dim})",
    "p rounds to 0, and 0 * log(0) is 0 * -inf; log_softmax stays finite",
)
GAUSSIAN_NLL = Pattern(
    "gaussian-nll",
    "log(var) + (x - mean) ** 2 / var",
    "torch.nn.functional.gaussian_nll_loss({x}, {target}, {other})",
    "a variance of 0 makes both terms infinite; gaussian_nll_loss keeps it at 1e-6 or above",
)
COSINE = Pattern(
    "cosine-similarity",
    "(a * b).sum() / (a.norm() * b.norm())",
    "torch.nn.functional.cosine_similarity({x}, {other}, {dim})",
    "a vector of length 0 makes it 0 / 0; cosine_similarity keeps each norm at eps or above",
)
NORMALIZE = Pattern(
    "normalize",
    "x / x.norm()",
    "torch.nn.functional.normalize({x}, dim={dim})",
    "a vector of length 0 makes it 0 / 0; normalize keeps the norm at eps or above",
)
STANDARDIZE = Pattern(
    "standardize",
    "(x - x.mean()) / x.std()",
    "({x} - {x}.mean({dim}, keepdim=True)) / ({x}.std({dim}, keepdim=True) + {eps})",
    "equal elements have a spread of 0, and one element has none",
)
SOFTMAX_BY_HAND = Pattern(
    "softmax",
    "exp(x) / exp(x).sum()",
    "torch.softmax({x}, {dim})",
    "exp overflows, or all of its results are 0; softmax subtracts the largest x first",
)
LOG_SOFTMAX = Pattern(
    "log-softmax",
    "log(softmax(x))",
    "torch.log_softmax({x}, {dim})",
    "softmax rounds small probabilities to 0, whose log is -inf",
)
LOG_SIGMOID = Pattern(
    "log-sigmoid",
    "log(sigmoid(x))",
    "torch.nn.functional.logsigmoid({x})",
    "sigmoid rounds to 0 for very negative x, and log(0) is -inf",
)
LOG_ONE_MINUS_SIGMOID = Pattern(
    "log-one-minus-sigmoid",
    "log(1 - sigmoid(x))",
    "torch.nn.functional.logsigmoid(-{x})",
    "sigmoid rounds to 1 for large x (above 17 in float32), and log(1 - 1) is -inf",
)
SOFTPLUS = Pattern(
    "softplus",
    "log(1 + exp(x))",
    "torch.nn.functional.softplus({x})",
    "exp overflows above 88 in float32, where the result is x itself",
)
LOGSUMEXP = Pattern(
    "logsumexp",
    "log(exp(x).sum())",
    "torch.logsumexp({x}, {dim})",
    "exp overflows, or all of its results are 0; logsumexp subtracts the largest x first",
)
LOGADDEXP = Pattern(
    "logaddexp",
    "log(exp(a) + exp(b))",
    "torch.logaddexp({x}, {other})",
    "exp overflows, or both of its results are 0",
)
LOG_COSH = Pattern(
    "log-cosh",
    "log(cosh(x))",
    "{x} + torch.nn.functional.softplus(-2 * {x}) - 0.6931471805599453",
    "cosh overflows above 89 in float32, where the result is |x| - log(2)",
)
LOG_PROD = Pattern(
    "log-prod",
    "log(x.prod())",
    "torch.log({x}).sum({dim})",
    "a product of many small factors rounds to 0",
)
SQRT_VAR = Pattern(
    "sqrt-var",
    "sqrt(x.var())",
    "{x}.std({dim})",
    "the root has an infinite slope at a variance of 0; PyTorch's std gives 0 there",
)
HAND_NORM = Pattern(
    "norm",
    "sqrt((x ** 2).sum())",
    "torch.linalg.vector_norm({x}, dim={dim})",
    "the root has an infinite slope at 0; PyTorch's norm gives the subgradient 0 there",
)
HAND_RMS = Pattern(
    "root-mean-square",
    "sqrt((x ** 2).mean())",
    "torch.linalg.vector_norm({x}, dim={dim}) / {x}.shape[{dim}] ** 0.5",
    "the root has an infinite slope at 0; PyTorch's norm gives the subgradient 0 there",
)
