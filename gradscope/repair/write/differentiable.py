"""What has a gradient that has one of its own."""

from gradscope.facts import requests as ask
from gradscope.ops.traits import key
from gradscope.repair.write.culprit import Culprit, Ways
from gradscope.repair.write.splice import keyword
from gradscope.repair.write.statements import within

_KERNELS = ("torch.nn.attention.sdpa_kernel(", "torch.nn.attention.SDPBackend.MATH")


def unmarked(culprit: Culprit, request: ask.Unmark) -> Ways:
    """Without `@once_differentiable`."""
    source = culprit.source
    lines = [one.line for one in request.marks]
    starts = [(source.offset(line, 0), source.offset(line + 1, 0)) for line in lines]
    yield [source.edit(start, past, "") for start, past in starts]


def differentiable(culprit: Culprit, request: ask.DifferentiableForm) -> Ways:
    """Attention by the kernel that consists of plain ops, distances by a matrix product."""
    source, call, statement = culprit.source, culprit.call, culprit.statement
    if key(request.op) == key("cdist") and call is not None:
        yield (keyword(source, call, "compute_mode", '"use_mm_for_euclid_dist"'),)
    if key(request.op) == key("_scaled_dot_product_attention") and statement is not None:
        opening = "".join(map(culprit.torch, _KERNELS))
        text = source.of(statement)
        yield (source.replaced(statement, within(source, f"with {opening})", statement, text)),)
