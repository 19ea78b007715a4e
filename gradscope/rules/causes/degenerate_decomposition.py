"""A matrix function at a matrix where its derivative does not exist."""

import math
from collections.abc import Iterator

from gradscope.facts import (
    Event,
    Finding,
    Fix,
    Kind,
    Measured,
    Operand,
    Phase,
    Raised,
    Root,
    Spectrum,
    Trace,
    text_of,
)
from gradscope.facts import requests as ask
from gradscope.ops import Edge, Nature, finfo, lookup
from gradscope.ops.dtypes import wider
from gradscope.rules import fixes
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases, proposals

# Of the largest eigenvalue: what is added to covariances in float64 (GPyTorch's `cholesky_jitter`).
_LEAST_SHARE = 1e-8


class DegenerateDecomposition(Rule):
    """
    ## What it does
    Finds a matrix function at a matrix where its derivative does not exist: `svd` or `eigh` with
    equal (or zero) singular values or eigenvalues, an inverse, `cholesky`, `qr` or `slogdet` of a
    singular matrix. Where `cholesky` or an inverse raises, it tells the smallest eigenvalue or
    singular value, and how the condition grew over the steps.

    ## Why is this bad?
    The derivative of singular vectors divides by the differences of the singular values. An
    identity or a rank-deficient matrix has equal ones, so the gradient is not finite, although the
    decomposition itself is.

    ## Example
    ```python
    import torch

    a = torch.eye(3, requires_grad=True)
    - u, s, vh = torch.linalg.svd(a)
    + spread = torch.diag(torch.tensor([0.0, 1e-3, 2e-3]))
    + u, s, vh = torch.linalg.svd(a + spread)
    (u[:, 0] * vh[0]).sum().backward()
    ```

    ## Fix safety
    Unsafe: the matrix is moved a little. Where only the values, or the product of the factors, are
    needed, `svdvals`, `eigvalsh` or a form without the decomposition has a finite gradient.
    """

    code = "GS208"
    name = "degenerate-decomposition"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from super().check(trace, roots)
        if trace.raised is not None and isinstance(trace.raised.why, Spectrum) and not roots:
            yield self._refused(trace.raised, trace.raised.why)

    def _refused(self, raised: Raised, found: Spectrum) -> Finding:
        op, (matrix, *_) = phrases.spelled(raised.call.op), raised.operands
        eps, added = finfo(matrix.dtype).eps, _added(raised, found)
        smallest, largest = text_of(found.smallest, 3), text_of(found.largest, 3)
        is_small = found.smallest >= -math.sqrt(eps) * found.largest
        # A noise that has come below 0 is the smallest eigenvalue, however small it is.
        is_told = added is not None and (added.min or 0.0) >= 2 * found.smallest
        is_rounding = is_small and not is_told
        values = "eigenvalue" if found.definite else "singular value"
        why = (
            f"The smallest {values} is {smallest}, the largest {largest}: in"
            f" {matrix.dtype} a matrix of order {found.order} needs one above about"
            f" {text_of(_rounded(found, eps), 2)} to be factored. "
        )
        if found.smallest == found.largest == 0:
            why = "All its elements are 0."
        elif not found.definite:
            why += "Some of its rows are sums of others, or all but equal to them."
        elif is_rounding:
            why += "Its rows have become so alike that rounding decides about the sign."
        else:
            why += (
                "That is no rounding: the matrix is no covariance"
                f"{'' if is_small else ', and no small addition makes it one'}."
            )
            if added is not None:
                value = text_of(added.min or 0.0, 3)
                why += f" It is made of {phrases.name(added)} as well, which is {value}."
        if found.definite and found.asymmetry > math.sqrt(eps) * abs(found.largest):
            why += (
                f" It is not symmetric either (elements differ by {text_of(found.asymmetry, 2)}),"
                f" and `{op}` reads one half of it."
            )
        # The last of each, by the size of the eigenvalues.
        steps = {
            one.step: abs(one.largest / one.smallest) if one.smallest else math.inf
            for one in (*raised.earlier, found)
        }
        history = ", ".join(f"{text_of(size, 2)} at step {step}" for step, size in steps.items())
        return self.found(
            f"{phrases.name(matrix, 'the matrix')} is"
            f" {'not positive definite' if found.definite else 'singular'} in {matrix.dtype}: its"
            f" smallest {values} is {smallest}",
            why,
            raised.call,
            step=raised.step,
            label=f"smallest {values} {smallest}, largest {largest}",
            evidence={
                **measurements.fields_of(found, "smallest", "largest", "asymmetry"),
                "earlier": [[one.step, one.smallest, one.largest] for one in raised.earlier],
            },
            measured=Measured((), matrix.dtype),
            numbers=(f"condition {history}",) if len(steps) > 1 else (),
            tensors=raised.operands,
            fixes=tuple(
                _additions(matrix, found, eps) if is_rounding else _factors(matrix, found, added)
            ),
        )

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if event.kind is Kind.CONSTANT or evidence.situation(root) is evidence.Situation.OUTSIDE:
            return None
        edge = evidence.edge(event)
        if edge is not None and edge.cause != self.name:
            return None  # elements so large that their products leave the dtype
        if edge is None and (not _decomposes(event) or evidence.infinite_operands(event)):
            return None
        op, is_backward = phrases.spelled(event.op), event.phase is Phase.BACKWARD
        what = f"the backward of `{op}`" if is_backward else f"`{op}` of a singular matrix"
        return self.finding(
            root,
            trace,
            message=f"{what} gives {phrases.outcome(event.output)} at {phrases.bad_of(event)}",
            label="no finite derivative at this matrix",
            why=_mechanism(event),
            fixes=_repairs(event, edge, trace),
        )


def _rounded(found: Spectrum, eps: float) -> float:
    """What rounding in a factorisation may make of an eigenvalue that is 0."""
    return found.order * eps * found.largest


def _added(raised: Raised, found: Spectrum) -> Operand | None:
    """What is below 0 and stands on a diagonal, or may, as a noise does: a number moves every
    eigenvalue by itself, and those of a covariance are 0 at least, most of them all but 0."""
    below = [
        one for one in raised.negative if one.numel > 1 or 2 * (one.min or 0.0) <= found.smallest
    ]
    return min(below, key=lambda one: abs((one.min or 0.0) - found.smallest), default=None)


def _additions(matrix: Operand, found: Spectrum, eps: float) -> Iterator[Fix | ask.Request]:
    """What lifts the smallest eigenvalue well above what rounding makes of it, then more; what is
    inverted must not be as small as that, since its inverse is squared in the gradient."""
    rounded = max(_rounded(found, eps), _LEAST_SHARE * found.largest)
    least = max(-2 * found.smallest, rounded) or eps
    if not found.definite:
        least = max(least, math.sqrt(eps) * found.largest)
    x = matrix.name or "x"
    for more in (1.0, 100.0):
        size = more * 10.0 ** math.ceil(math.log10(least))
        yield ask.AddToDiagonal(size, x)
    wide, cast = wider(matrix.dtype)
    if wide != matrix.dtype and found.largest:
        title = f"compute the matrix and its factor in {wide}"
        yield Fix("dtype", title, "unsafe", f"{x}.{cast}", request=ask.WiderDtype())


def _factors(matrix: Operand, found: Spectrum, added: Operand | None) -> Iterator[Fix]:
    """What makes a matrix definite by construction, where no small addition can."""
    yield from fixes.as_logarithm(added)
    if found.definite:
        x = matrix.name or "x"
        title = (
            f"learn the factor of {phrases.name(matrix, 'the matrix')}, with a positive diagonal"
        )
        factor = "factor = torch.tril(w, -1) + torch.diag_embed(log_scale.exp())"
        code = f"{factor}  # {x} = factor @ factor.mT"
        yield Fix("init", title, "display-only", code)


def _decomposes(event: Event) -> bool:
    """Whether a matrix can be degenerate to the op, also where no edge holds what is known."""
    fact = lookup(event.op)
    return fact is not None and any(edge.nature is Nature.DEGENERATE for edge in fact.edges)


def _mechanism(event: Event) -> str:
    op, fact = phrases.spelled(event.op), lookup(event.op)
    values = next((one for one in event.operands if one.role in ("S", "L")), None)
    measured = ""
    if values is not None and values.min is not None:
        low, high = phrases.number(values.min), phrases.number(values.max)
        measured = f" The values lie between {low} and {high}."
        if low == high:
            measured = f" All values are {low}."
    if fact is not None and fact.matrix is not None and fact.matrix.values is not None:
        return (
            f"The derivative of `{op}` divides by the differences of singular values or"
            f" eigenvalues, and two of them are equal here.{measured} The decomposition itself is"
            " finite, so the loss shows nothing."
        )
    return (
        f"`{op}` has no finite derivative at a singular matrix: a pivot, an eigenvalue or the"
        f" determinant is 0.{measured}"
    )


def _repairs(event: Event, edge: Edge | None, trace: Trace) -> tuple[Fix, ...]:
    matrix = event.operand("self") or event.operand("A")
    first = next(iter(event.operands), None)
    x = phrases.source(first, first.role) if matrix is not None and first is not None else "x"
    eps = Fix(
        "epsilon",
        "move equal or zero values apart by a small, uneven diagonal",
        "unsafe",
        f"{x} + 1e-4 * torch.diag_embed(torch.arange({x}.shape[-1], dtype={x}.dtype))",
        request=ask.KeepOff(),
    )
    stable = Fix(
        "stable-op",
        "use a form that needs no derivative of the factors (`svdvals`, `eigvalsh`, Gram-Schmidt)",
    )
    known = fixes.preferred(DegenerateDecomposition.name, event, edge, trace)
    others = (fix for fix in known if not isinstance(fix.request, ask.KeepOff))
    guards: tuple[Fix, ...] = ()
    if edge is not None and edge.cure.guard and first is not None:  # it adds to the diagonal
        size = float(edge.cure.eps(first.dtype, first.largest))
        guards = (proposals.proposed(ask.AddToDiagonal(size, x)),)
    return (*guards, eps, *others, stable)
