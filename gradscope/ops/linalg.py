"""Decompositions, inverses and determinants.

Whether a matrix is degenerate cannot be told from one element: these edges ask whether the result
broke although the matrix is finite.
"""

import math
from functools import partial

from gradscope.ops.cures import Cure
from gradscope.ops.dtypes import Margin
from gradscope.ops.edges import Decomposition, OpFact, Values, degenerate, overflow, pole, too_steep
from gradscope.ops.predicates import both, broke, largest, slope_broke
from gradscope.ops.shared import infinite_inputs

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
    return _magnitude(values) > math.sqrt(largest(values))


def _tiny(values: Values) -> bool:
    """Small enough that the square of a reciprocal leaves the dtype."""
    return 0 < _magnitude(values) < 1 / math.sqrt(largest(values))


def _decomposition(
    name: str,
    argument: str = "A",
    *,
    value: str = "",
    slope: str = "",
    measured: bool = False,
    values: int | None = None,
    definite: bool = False,
) -> OpFact:
    """`value` and `slope` say what is degenerate where they break; an empty one cannot. `measured`:
    nearness to that can be; `values` and `definite` are then as in `Decomposition`."""
    # A multiple of the identity moves pivots away from 0, and not eigenvalues from each other.
    cure = Cure(guard=_JITTER if measured and values is None else "", margin=Margin.PIVOT)
    is_degenerate = bool(value or slope)
    large = both(broke(argument), _huge) if is_degenerate else broke(argument)
    edges = [overflow(large, "a product of elements", argument=argument, wider=True)]
    if is_degenerate:
        what = value or "the matrix is close to singular, and its factors leave the dtype"
        singular = partial(pole, cause="degenerate-decomposition", argument=argument)
        edges.append(singular(broke(argument), what, cure))
    edges += infinite_inputs(argument, says="the matrix already holds inf")
    for holds, size, cause in (
        (_huge, "large", "overflow"),
        (_tiny, "small", "degenerate-decomposition"),
    ):
        what = f"a product in the slope leaves the dtype for elements this {size}"
        steep = partial(too_steep, ending="", argument=argument, cause=cause, wider=True)
        edges.append(steep(both(slope_broke(argument), holds), what))
    if slope:
        edges.append(degenerate(slope_broke(argument), slope, cure, argument=argument))
    matrix = Decomposition(argument, values, definite) if measured else None
    return OpFact(name, *edges, matrix=matrix)


_SINGULAR = "the matrix is singular: a pivot is 0"
_PIVOT = "slope contains the inverse of the factor: a pivot is 0"
_DISTINCT = "slope divides by the differences of the {}, and two of them are equal"
_TURNS = "slope divides by 1 - tau |v|^2, which is 0 here"
_ON_DIAGONAL = "a diagonal element of the {} is 0"
_SOLVES = "slope solves with the factor, and a diagonal element of it is 0: not positive definite"
_DEPENDENT = "slope solves with R, and a diagonal element of R is 0: dependent columns"
_SQUARES = _DISTINCT.format("squared singular values (or by one that is 0)")
_EQUAL = _DISTINCT.format("eigenvalues")
_NO_DETERMINANT = "the determinant is 0, and its logarithm is -inf"

FACTS = (
    _decomposition("_linalg_svd", slope=_SQUARES, measured=True, values=1),
    _decomposition("_linalg_eigh", slope=_EQUAL, measured=True, values=0),
    _decomposition("linalg_eig", "self", slope=_EQUAL, measured=True, values=0),
    _decomposition("linalg_qr", slope=_DEPENDENT),
    _decomposition("linalg_lu", slope=_PIVOT, measured=True),
    _decomposition("linalg_lu_factor_ex", slope=_PIVOT, measured=True),
    _decomposition("linalg_lu_solve", "LU", value=_SINGULAR, slope=_PIVOT),
    _decomposition(
        "linalg_cholesky_ex",
        "self",
        value="the matrix is not positive definite",
        slope=_SOLVES,
        measured=True,
        definite=True,
    ),
    *(
        _decomposition(name, argument, value=_ON_DIAGONAL.format(of), slope=_PIVOT)
        for name, argument, of in (
            ("cholesky_inverse", "self", "factor"),
            ("cholesky_solve", "input2", "factor"),
            ("linalg_solve_triangular", "self", "matrix"),
            ("triangular_solve", "A", "matrix"),
        )
    ),
    _decomposition("linalg_inv_ex", value=_SINGULAR, slope=_SINGULAR, measured=True),
    _decomposition("_linalg_solve_ex", value=_SINGULAR, slope=_SINGULAR, measured=True),
    _decomposition("_linalg_det", slope=_SINGULAR),
    _decomposition("_linalg_slogdet", value=_NO_DETERMINANT, slope=_SINGULAR, measured=True),
    _decomposition("linalg_pinv", "self", slope="the rank of the matrix changes here"),
    _decomposition("linalg_lstsq", "self", value=_SINGULAR, slope="the matrix has not full rank"),
    _decomposition("linalg_matrix_exp", "self"),
    _decomposition("linalg_householder_product", "input", slope=_TURNS),
    _decomposition("ormqr", "self", slope=_TURNS),
)
