"""Decompositions, inverses and determinants.

Whether a matrix is degenerate cannot be told from one element: these edges ask whether the result
broke although the matrix is finite.
"""

from gradscope.ops.cures import Cure
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import (
    Decomposition,
    OpFact,
    Values,
    degenerate,
    fact,
    overflow,
    pole,
    too_steep,
)
from gradscope.ops.predicates import both, broke, has_infinity, largest, slope_broke
from gradscope.ops.shared import WIDEST, infinite_input

_JITTER = "{x} + {eps} * torch.eye({x}.shape[-1], dtype={x}.dtype, device={x}.device)"


_NOT_OPERANDS = ("dtype", "output", "grad_input")


def _magnitude(values: Values) -> float:
    """The largest |element| of what was measured: a node may have saved the factors alone."""
    ends = [
        abs(value)
        for name, value in values.items()
        if name.endswith((".min", ".max")) and name.split(".")[0] not in _NOT_OPERANDS
    ]
    return max(ends, default=0.0)


def _huge(values: Values) -> bool:
    """Large enough that a product of two elements leaves the dtype."""
    return _magnitude(values) ** 2 > largest(values)


def _tiny(values: Values) -> bool:
    """Small enough that the square of a reciprocal leaves the dtype."""
    return 0 < _magnitude(values) ** 2 < 1 / largest(values)


def _decomposition(
    name: str, argument: str, value: str = "", slope: str = "", matrix: Decomposition | None = None
) -> OpFact:
    """`value` and `slope` say what is degenerate where they break; an empty one cannot."""
    # A multiple of the identity moves pivots away from 0, and not eigenvalues from each other.
    guard = _JITTER if matrix is not None and matrix.values is None else ""
    edges = [
        overflow(
            both(broke(argument), _huge) if value or slope else broke(argument),
            "a product of elements",
            argument=argument,
            stable=WIDEST,
        )
    ]
    if value or slope:
        edges.append(
            pole(
                broke(argument),
                value or "the matrix is close to singular, and its factors leave the dtype",
                Cure(guard=guard, margin=Margin.PIVOT),
                argument=argument,
                cause="degenerate-decomposition",
            )
        )
    edges.append(infinite_input(argument, has_infinity(argument), "the matrix already holds inf"))
    for holds, what, cause in (
        (_huge, "elements this large", "overflow"),
        (_tiny, "elements this small", "degenerate-decomposition"),
    ):
        edges.append(
            too_steep(
                both(slope_broke(argument), holds),
                f"a product in the slope leaves the dtype for {what}",
                ending="",
                argument=argument,
                cause=cause,
                stable=WIDEST,
            )
        )
    if slope:
        edges.append(
            degenerate(
                slope_broke(argument),
                slope,
                Cure(guard=guard, margin=Margin.PIVOT),
                argument=argument,
            )
        )
    return fact(name, *edges, matrix=matrix)


_SINGULAR = "the matrix is singular: a pivot is 0"
_PIVOT = "slope contains the inverse of the factor: a pivot is 0"
_DISTINCT = "slope divides by the differences of the {}, and two of them are equal"

FACTS = (
    _decomposition(
        "_linalg_svd",
        "A",
        slope=_DISTINCT.format("squared singular values (or by one that is 0)"),
        matrix=Decomposition("A", values=1),
    ),
    _decomposition(
        "_linalg_eigh",
        "A",
        slope=_DISTINCT.format("eigenvalues"),
        matrix=Decomposition("A", values=0),
    ),
    _decomposition(
        "linalg_eig",
        "self",
        slope=_DISTINCT.format("eigenvalues"),
        matrix=Decomposition("self", values=0),
    ),
    _decomposition(
        "linalg_qr",
        "A",
        slope="slope solves with R, and a diagonal element of R is 0: dependent columns",
    ),
    _decomposition("linalg_lu", "A", slope=_PIVOT, matrix=Decomposition("A")),
    _decomposition("linalg_lu_factor_ex", "A", slope=_PIVOT, matrix=Decomposition("A")),
    _decomposition("linalg_lu_solve", "LU", value=_SINGULAR, slope=_PIVOT),
    _decomposition(
        "linalg_cholesky_ex",
        "self",
        value="the matrix is not positive definite",
        slope="slope solves with the factor, and a diagonal element of it is 0: not positive"
        " definite",
        matrix=Decomposition("self", definite=True),
    ),
    _decomposition(
        "cholesky_inverse", "self", value="a diagonal element of the factor is 0", slope=_PIVOT
    ),
    _decomposition(
        "cholesky_solve", "input2", value="a diagonal element of the factor is 0", slope=_PIVOT
    ),
    _decomposition(
        "linalg_inv_ex", "A", value=_SINGULAR, slope=_SINGULAR, matrix=Decomposition("A")
    ),
    _decomposition(
        "_linalg_solve_ex", "A", value=_SINGULAR, slope=_SINGULAR, matrix=Decomposition("A")
    ),
    _decomposition("_linalg_det", "A", slope=_SINGULAR),
    _decomposition(
        "_linalg_slogdet",
        "A",
        value="the determinant is 0, and its logarithm is -inf",
        slope=_SINGULAR,
        matrix=Decomposition("A"),
    ),
    _decomposition("linalg_pinv", "self", slope="the rank of the matrix changes here"),
    _decomposition("linalg_lstsq", "self", value=_SINGULAR, slope="the matrix has not full rank"),
    _decomposition("linalg_matrix_exp", "self"),
    _decomposition(
        "linalg_householder_product",
        "input",
        slope="slope divides by 1 - tau |v|^2, which is 0 here",
    ),
    _decomposition("ormqr", "self", slope="slope divides by 1 - tau |v|^2, which is 0 here"),
    _decomposition(
        "linalg_solve_triangular",
        "self",
        value="a diagonal element of the matrix is 0",
        slope=_PIVOT,
    ),
    _decomposition(
        "triangular_solve", "A", value="a diagonal element of the matrix is 0", slope=_PIVOT
    ),
)
