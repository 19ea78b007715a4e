"""Norms as curves in the logger that a project has: TensorBoard, W&B, MLflow, accelerate.

`grad_norm/total` is the L2 norm of all gradients, `grad_norm/<name>` that of one parameter's,
`grad_norm/clip_coefficient` what the program's own clipping multiplied them by (1: it left them),
`grad_zeros/total` the share of elements that are exactly 0, at the steps that are looked at closer.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gradscope.errors import GradscopeError
from gradscope.facts import Leaf
from gradscope.norms.facts import NormReport, clip_coefficient
from gradscope.norms.meter import coefficient, dense
from gradscope.record.finite import is_distributed, local
from gradscope.record.passes import Graded
from gradscope.record.sizes.leaves import norms_of

TOTAL, OF, CLIPPED = "grad_norm/total", "grad_norm/{}", "grad_norm/clip_coefficient"
ZEROS = "grad_zeros/total"
_PATIENCE = 64  # passes for which an update is waited for

Write = Callable[[Mapping[str, float], int], object]  # values by name, the step


def writer_of(logger: Any) -> Write:
    """How a logger takes values, by the methods that it has: `add_scalar` (SummaryWriter),
    `log_metrics` (mlflow, Lightning's loggers), `log` (a run of W&B, accelerate). Raises
    GradscopeError where it has none of them."""
    if (add := getattr(logger, "add_scalar", None)) is not None:

        def added(values: Mapping[str, float], step: int) -> None:
            for name, value in values.items():
                add(name, value, step)

        return added
    if (tell := getattr(logger, "log_metrics", None)) is not None:
        return lambda values, step: tell(dict(values), step=step)
    log: Any = getattr(logger, "log", None)
    if log is not None:
        if "commit" in inspect.signature(log).parameters:
            return _Rows(logger)
        return lambda values, step: log(dict(values), step=step)
    raise GradscopeError(
        f"a {type(logger).__name__} cannot log values",
        help="give a SummaryWriter, a run of W&B, mlflow, or an Accelerator: what has add_scalar, "
        "log_metrics or log",
    )


class _Rows:
    """W&B counts the calls that end a row: values go into that of the program's own call. Where it
    has made none since the last ones, they have a row of their own."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._row: int | None = None

    def __call__(self, values: Mapping[str, float], step: int) -> None:
        run = getattr(self._logger, "run", self._logger)  # of the module wandb
        if self._row is not None and run.step == self._row:
            self._logger.log({}, commit=True)
        self._row = run.step
        self._logger.log(dict(values), commit=False)


class Scalars:
    """A `Measure` that tells a logger of each update: of each backward, where nothing updates.
    Steps count what is told from 0, every `every`th of them is."""

    def __init__(self, write: Write, every: int = 1) -> None:
        self._write = write
        self._every = every
        self._waiting: list[dict[str, float]] = []  # passes since the last update
        self._count = 0
        self._has_updates: bool | None = None  # None: not known yet

    def after_backward(
        self, step: int, graded: Graded, leaf_of: Callable[[torch.Tensor], Leaf], inspected: bool
    ) -> None:
        if self._has_updates:
            self._waiting.clear()
        elif len(self._waiting) > _PATIENCE:
            self.end()
        is_logged = self._has_updates is None or self._count % self._every == 0
        self._waiting.append(_values(graded, leaf_of, inspected) if is_logged else {})
        if self._has_updates is False:
            self._tell()

    def note_clip(self, bound: float, total: torch.Tensor | None) -> None:
        if total is not None and self._waiting and not is_distributed(total):
            self._waiting[-1][CLIPPED] = float(coefficient(total, bound))

    def after_update(self, leaves: object, name: object) -> None:
        self._has_updates = True
        del self._waiting[:-1]
        self._tell()

    def forget(self) -> None:
        self._waiting.clear()

    def facts(self) -> None:
        return None

    def end(self) -> None:
        """Nothing more comes, or no update has come for long."""
        if not self._has_updates:
            self._has_updates = False
            self._tell()

    def _tell(self) -> None:
        for values in self._waiting:
            if self._count % self._every == 0 and values:
                self._write(values, self._count)
            self._count += 1
        self._waiting.clear()


def _values(
    graded: Graded, leaf_of: Callable[[torch.Tensor], Leaf], inspected: bool
) -> dict[str, float]:
    """Of what is sharded over ranks none: each knows the norm of its part alone."""
    leaves = [leaf_of(leaf) for leaf, _ in graded]
    grads = [local(grad) for _, grad in graded]
    norms = norms_of(grads)
    known = zip(leaves, norms, strict=True)
    found = {OF.format(leaf.name): norm for leaf, norm in known if leaf.shard is None}
    if len(found) < len(norms):
        return found
    found[TOTAL] = math.hypot(*norms)
    if inspected:
        values = list(map(dense, grads))
        elements = sum(one.numel() for one in values)
        others = sum(int(torch.count_nonzero(one)) for one in values)
        found[ZEROS] = 1 - others / elements if elements else 0.0
    return found


def write_tensorboard(report: NormReport, folder: Path) -> None:
    """The same of a run that is over, as files that TensorBoard reads. Raises GradscopeError where
    they cannot be written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise GradscopeError(
            "--tensorboard needs the package tensorboard", help="pip install tensorboard"
        ) from error
    measured = report.measured
    try:
        with SummaryWriter(str(folder)) as board:
            write = writer_of(board)
            for step, total in zip(measured.steps, measured.exact, strict=True):
                values = {TOTAL: total}
                if report.options.max_norm is not None:
                    values[CLIPPED] = clip_coefficient(total, report.options.max_norm)
                for leaf in report.sizes.leaves:
                    norm = leaf.norms[step] if step < len(leaf.norms) else None
                    if norm is not None:
                        values[OF.format(leaf.name)] = norm
                write(values, step)
            elements = sum(row.numel for row in measured.rows)
            zeros = sum(row.zeros for row in measured.rows)
            if elements:
                write({ZEROS: zeros / elements}, measured.steps[measured.shown])
    except OSError as error:
        raise GradscopeError(f"--tensorboard {folder} cannot be written: {error}") from error
