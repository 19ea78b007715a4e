"""Decompositions, inverses and determinants.

Whether a matrix is degenerate cannot be told from one element: these edges ask whether the result
broke although the matrix is finite.
"""

from __future__ import annotations

from gradscope.ops.cures import Cure
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import Edge, Nature, OpFact, Values
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


def _edges(argument: str, value: str, slope: str, guard: str = "") -> tuple[Edge, ...]:
    """`value` and `slope` say what is degenerate where they break; an empty one cannot."""
    edges = [
        Edge(
            argument,
            Nature.OVERFLOW,
            both(broke(argument), _huge) if value or slope else broke(argument),
            "a product of elements leaves the dtype",
            "overflow",
            stable=WIDEST,
        )
    ]
    if value or slope:
        edges.append(
            Edge(
                argument,
                Nature.POLE,
                broke(argument),
                value or "the matrix is close to singular, and its factors leave the dtype",
                "degenerate-decomposition",
                slope="nan",
                cure=Cure(guard=guard, margin=Margin.PIVOT),
            )
        )
    edges.append(infinite_input(argument, has_infinity(argument), "the matrix already holds inf"))
    for holds, what, cause in (
        (_huge, "elements this large", "overflow"),
        (_tiny, "elements this small", "degenerate-decomposition"),
    ):
        edges.append(
            Edge(
                argument,
                Nature.SLOPE_OVERFLOW,
                both(slope_broke(argument), holds),
                f"a product in the slope leaves the dtype for {what}",
                cause,
                slope="nan",
                stable=WIDEST,
            )
        )
    if slope:
        edges.append(
            Edge(
                argument,
                Nature.DEGENERATE,
                slope_broke(argument),
                slope,
                "degenerate-decomposition",
                slope="nan",
                cure=Cure(guard=guard, margin=Margin.PIVOT),
            )
        )
    return tuple(edges)


_SINGULAR = "the matrix is singular: a pivot is 0"
_PIVOT = "slope contains the inverse of the factor: a pivot is 0"
_DISTINCT = "slope divides by the differences of the {}, and two of them are equal"

# (op, its matrix, what its value does, what its slope does, spelled)
_OPS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "_linalg_svd",
        "A",
        "",
        _DISTINCT.format("squared singular values (or by one that is 0)"),
        ("torch.linalg.svd", "torch.svd", "torch.linalg.svdvals", "torch.svd_lowrank"),
    ),
    (
        "_linalg_eigh",
        "A",
        "",
        _DISTINCT.format("eigenvalues"),
        ("torch.linalg.eigh", "torch.linalg.eigvalsh"),
    ),
    (
        "linalg_eig",
        "self",
        "",
        _DISTINCT.format("eigenvalues"),
        ("torch.linalg.eig", "torch.linalg.eigvals"),
    ),
    (
        "linalg_qr",
        "A",
        "",
        "slope solves with R, and a diagonal element of R is 0: dependent columns",
        ("torch.linalg.qr", "torch.qr"),
    ),
    ("linalg_lu", "A", "", _PIVOT, ("torch.linalg.lu",)),
    ("linalg_lu_factor_ex", "A", "", _PIVOT, ("torch.linalg.lu_factor", "torch.lu")),
    ("linalg_lu_solve", "LU", _SINGULAR, _PIVOT, ("torch.linalg.lu_solve", "torch.lu_solve")),
    (
        "linalg_cholesky_ex",
        "self",
        "the matrix is not positive definite",
        "slope solves with the factor, and a diagonal element of it is 0: not positive definite",
        ("torch.linalg.cholesky", "torch.linalg.cholesky_ex"),
    ),
    ("cholesky_inverse", "self", "a diagonal element of the factor is 0", _PIVOT, ()),
    ("cholesky_solve", "input2", "a diagonal element of the factor is 0", _PIVOT, ()),
    (
        "linalg_inv_ex",
        "A",
        _SINGULAR,
        _SINGULAR,
        ("torch.linalg.inv", "torch.inverse", "torch.linalg.matrix_power"),
    ),
    ("_linalg_solve_ex", "A", _SINGULAR, _SINGULAR, ("torch.linalg.solve",)),
    ("_linalg_det", "A", "", _SINGULAR, ("torch.linalg.det", "torch.det")),
    (
        "_linalg_slogdet",
        "A",
        "the determinant is 0, and its logarithm is -inf",
        _SINGULAR,
        ("torch.linalg.slogdet", "torch.logdet"),
    ),
    ("linalg_pinv", "self", "", "the rank of the matrix changes here", ("torch.linalg.pinv",)),
    ("linalg_lstsq", "self", _SINGULAR, "the matrix has not full rank", ("torch.linalg.lstsq",)),
    ("linalg_matrix_exp", "self", "", "", ("torch.matrix_exp", "torch.linalg.matrix_exp")),
    (
        "linalg_householder_product",
        "input",
        "",
        "slope divides by 1 - tau |v|^2, which is 0 here",
        ("torch.linalg.householder_product",),
    ),
    ("ormqr", "self", "", "slope divides by 1 - tau |v|^2, which is 0 here", ("torch.ormqr",)),
    (
        "linalg_solve_triangular",
        "self",
        "a diagonal element of the matrix is 0",
        _PIVOT,
        ("torch.linalg.solve_triangular",),
    ),
    (
        "triangular_solve",
        "A",
        "a diagonal element of the matrix is 0",
        _PIVOT,
        ("torch.triangular_solve",),
    ),
)

# A multiple of the identity moves eigenvalues and pivots away from 0, not away from each other.
_JITTERED = {
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_cholesky_ex",
    "linalg_inv_ex",
    "_linalg_solve_ex",
    "_linalg_slogdet",
}

FACTS = tuple(
    OpFact(
        name,
        _edges(argument, value, slope, guard=_JITTER if name in _JITTERED else ""),
        spelled,
    )
    for name, argument, value, slope, spelled in _OPS
)
