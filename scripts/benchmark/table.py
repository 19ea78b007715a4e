"""The figures as one table, each beside what it may be at most, and the ways side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmark.frameworks import Beside
from benchmark.memory import Growth
from benchmark.runs import Copy, Late, Whole
from benchmark.startup import Startup
from benchmark.steps import Cost

LIMITS = {
    "watching": {"transformer": 1.01, "cnn": 1.01, "mlp": 1.03, "loss": 1.1},
    "in full": {"transformer": 1.1, "cnn": 1.15, "mlp": 4.0, "loss": 5.0},
    "norms": {"transformer": 1.05},
}
WHOLE = {100: 1.6, 1_000: 1.15, 10_000: 1.03}
HELP, WALL = 0.2, 1.3
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Figure:
    """`limit` is None where there is none; `beside` puts the value into perspective."""

    what: str
    value: float
    unit: str
    limit: float | None
    beside: str


def of_cost(cost: Cost) -> Iterator[Figure]:
    for way, limits in LIMITS.items():
        low, high = cost.spread[way]
        yield Figure(
            what=f"{way} / bare step, {cost.program}",
            value=cost.ratios[way],
            unit="x",
            limit=limits.get(cost.program),
            beside=f"{low:.2f} to {high:.2f}; anomaly mode {cost.ratios['anomaly mode']:.2f}x;"
            f" bare {cost.seconds * 1e3:.3g} ms",
        )


def of_growth(growth: Growth) -> Iterator[Figure]:
    early, late = growth.early, growth.late
    yield Figure(
        what=f"growth over {growth.steps:,} steps, {growth.program}",
        value=growth.per_step,
        unit=" B a step",
        limit=None,
        beside=f"Python objects {early.traced / MIB:.2f} to {late.traced / MIB:.2f} MiB,"
        f" resident {early.resident / MIB:.0f} to {late.resident / MIB:.0f} MiB",
    )
    yield Figure(
        what=f"tensors more after {growth.steps:,} steps, {growth.program}",
        value=late.tensors - early.tensors,
        unit="",
        limit=0,
        beside=f"{early.tensors} to {late.tensors}",
    )


def of_startup(startup: Startup) -> Iterator[Figure]:
    yield Figure("gradscope --help", startup.help, " s", HELP, "")
    beside = f"{startup.trace:.2f} s to {startup.python:.2f} s"
    yield Figure("gradscope trace / python, gamma_mask", startup.ratio, "x", WALL, beside)


def of_whole(run: Whole) -> Figure:
    return Figure(
        what=f"gradscope trace / python, mlp, {run.steps:,} steps",
        value=run.trace / run.python,
        unit="x",
        limit=WHOLE[run.steps],
        beside=f"{run.trace:.2f} s to {run.python:.2f} s of CPU time",
    )


def of_callback(cost: Beside) -> Figure:
    return Figure(
        what=f"a step of the mlp in {cost.framework}, with the callback / bare",
        value=cost.watched / cost.bare,
        unit="x",
        limit=None,
        beside=f"{1e3 * cost.watched:.2f} ms to {1e3 * cost.bare:.2f} ms",
    )


def of_late(run: Late) -> Figure:
    return Figure(
        what=f"a failure at step {run.step:,} to its report, beyond python",
        value=run.seconds,
        unit=" s",
        limit=None,
        beside=f"{run.verified} of {run.fixes} fixes verified",
    )


def of_copy(copy: Copy) -> Figure:
    return Figure(
        what=f"a snapshot of {copy.megabytes:,} MB of state that are all written after it",
        value=(copy.fork + copy.writing - copy.again) * 1e3,
        unit=" ms",
        limit=None,
        beside=f"fork {copy.fork * 1e3:.1f} ms, the rest to copy what is written",
    )


def side_by_side(costs: Sequence[Cost], console: Console) -> None:
    """The step in every way, as ratios to the bare one."""
    ways = [way for way in costs[0].ratios if way != "bare"]
    table = Table("step", "bare", *ways, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for cost in costs:
        ratios = (f"{cost.ratios[way]:.2f}x" for way in ways)
        table.add_row(cost.program, f"{cost.seconds * 1e3:.3g} ms", *ratios)
    console.print(table)


def show(figures: Sequence[Figure], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("what")
    for column in ("measured", "at most", ""):
        table.add_column(column, justify="right")
    table.add_column("beside")
    for figure in figures:
        table.add_row(
            figure.what,
            f"{figure.value:.3g}{figure.unit}",
            "" if figure.limit is None else f"{figure.limit:g}{figure.unit}",
            "" if figure.limit is None else "ok" if figure.value <= figure.limit else "OVER",
            figure.beside,
        )
    console.print(table)
