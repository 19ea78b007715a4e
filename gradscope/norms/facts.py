"""What `gradscope norms` measured and what it concludes. Frozen, without torch."""

import math

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Magnitudes, Report

# What torch adds to the total before it divides (torch/nn/utils/clip_grad.py).
TORCH_EPS = 1e-6


def clip_coefficient(total: float, max_norm: float) -> float:
    """What `clip_grad_norm_` multiplies gradients of that total norm by."""
    return min(1.0, max_norm / (total + TORCH_EPS))


_ROUNDING = 1e-6  # of a share of float32 norms


@dataclass(frozen=True, slots=True)
class NormOptions:
    """`max_norm` None: take the recommended one. `norm_type` is p, inf included."""

    max_norm: float | None = None
    norm_type: float = 2.0

    def __post_init__(self) -> None:
        if self.max_norm is not None and not 0 < self.max_norm < math.inf:
            raise GradscopeError(
                f"--max-norm {self.max_norm:g} is not a bound",
                help="give a number above 0, or leave it out and get one recommended",
            )
        if not self.norm_type > 0:
            raise GradscopeError(
                f"--norm-type {self.norm_type:g} is not a norm",
                help="give 1, 2, inf or any p above 0",
            )


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter's gradient at the step that is shown.

    Norms are of the chosen type and as torch computes them, but for `norm`, which falls back to
    float64 where the squares leave the dtype's range. `moved` are the norm of what the optimizer
    changed and that of the parameter before. `values` and `clipped_values` are given for gradients
    of a few elements. `shard` is the part of the gradient that was measured, None of a whole one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    numel: int
    norm: float
    max_abs: float
    zeros: int
    bad: int
    clipped: float | None = None
    moved: tuple[float, float] | None = None
    values: tuple[float, ...] = ()
    clipped_values: tuple[float, ...] = ()
    sparse: bool = False
    shard: tuple[int, ...] | None = None

    @property
    def update(self) -> float | None:
        """The norm of what the optimizer changed over the norm of the parameter."""
        if self.moved is None:
            return None
        moved, size = self.moved
        return moved / size if size else math.inf


@dataclass(frozen=True, slots=True)
class Measured:
    """What comes back from the program's process. `steps` are the numbers of the backward passes
    that were measured. `totals` has one entry for each, as `torch.nn.utils.clip_grad_norm_`
    computes it; `exact` the same in float64, over finite gradients. `rows` are of the one at
    position `shown`, for which `coefficient` was computed in torch. Where gradients are sharded
    over ranks, all this is of the parts that are here, and `parts` has the norm of each leaf's at
    each step."""

    steps: tuple[int, ...] = ()
    totals: tuple[float, ...] = ()
    exact: tuple[float, ...] = ()
    shown: int = 0
    rows: tuple[Row, ...] = ()
    coefficient: float | None = None
    parts: tuple[dict[str, float], ...] = ()

    @property
    def step(self) -> int:
        """The number of the step that is shown."""
        return self.steps[self.shown] if self.steps else 0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Total norms over the steps. `spikes` are (step, norm)."""

    steps: int
    finite: int
    median: float
    p90: float
    p95: float
    max: float
    spikes: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A max_norm, where it comes from, and how many of the steps it would have clipped."""

    method: str
    value: float
    clips: int
    steps: int
    reason: str


@dataclass(frozen=True, slots=True)
class NormReport:
    judged: Report
    options: NormOptions
    measured: Measured
    distribution: Distribution | None
    bounds: tuple[Bound, ...]
    max_norm: float | None
    coefficient: float | None
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> Magnitudes:
        """The sizes that every run records, measured or not."""
        return self.judged.trace.magnitudes

    def share(self, row: Row) -> float | None:
        """The row's part of the total, in terms of what adds up: norms to the power of p."""
        if not 0 < self.total < math.inf:
            return None
        part, p = row.norm / self.total, self.options.norm_type
        share = part if math.isinf(p) else float(part**p)
        # Both norms were rounded to float32: all of it is not to read as nearly all of it.
        return 1.0 if math.isclose(share, 1.0, rel_tol=_ROUNDING) else share

    @property
    def total(self) -> float:
        """The total norm of the step that is shown: in float64 where torch's overflowed."""
        shown = self.measured.shown
        if shown >= len(self.measured.totals):
            return 0.0
        total = self.measured.totals[shown]
        return total if math.isfinite(total) else self.measured.exact[shown]
