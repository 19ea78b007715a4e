"""What a report of norms says, in the order in which it is read: sentences, tables and curves.

Text and page show the same sections, and each decides what they look like.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath

from gradscope.dataclass import dataclass
from gradscope.facts import Depth, Growth, LayerSize, percent, plural, text_of
from gradscope.norms import bars, charts
from gradscope.norms.distribution import GIVEN
from gradscope.norms.facts import Bound, Distribution, Measured, NormReport, Row
from gradscope.norms.rows import Branch, arrange, branches, fitting, fold_layers

_SPIKES_SHOWN = 5
_LAYERS_DRAWN = 60  # rows of the picture; the table beside it is of all
_WRITTEN_OUT = 4  # parameters of a few elements, whose gradients are given in full


@dataclass(frozen=True, slots=True)
class Column:
    """A text for each row. `lengths` are bars beside them, as `bars.bar` takes them."""

    name: str
    cells: tuple[str, ...]
    lengths: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A sentence and the values that it is about. With `ends` the first and last are named too."""

    sentence: str
    values: tuple[float, ...]
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """`title` is the page's heading; a section without one goes on with the last."""

    title: str
    lines: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    table: tuple[Column, ...] = ()
    picture: Callable[[], str] | None = None


def sections(
    report: NormReport,
    *,
    depth: int | None = None,
    sort: str = "module",
    tree: bool = False,
    most: int | None = None,
) -> Iterator[Section]:
    """All but the findings. `depth` and `sort` are as in `rows.arrange`; with `tree` parameters
    stand under their modules, and no more than `most` layers are listed."""
    p = report.options.norm_type
    rows = arrange(report.measured.rows, p, depth, sort)
    listed = branches(rows, p) if tree else [Branch(row.name, 0, row, False) for row in rows]
    yield Section("", tuple(_head(report)), table=tuple(_parameters(report, listed)))
    yield Section("", (*_clipping(report), *_values(report)))
    if report.distribution is not None:
        yield from _over_steps(report, report.distribution)
    sizes = report.sizes
    if sizes.depth is not None and sizes.depth.layers:
        yield _by_depth(sizes.depth, depth, most)
    if sizes.growths:
        yield _by_growth(sizes.growths[-1])


def _head(report: NormReport) -> Iterator[str]:
    yield from report.judged.remarks
    yield from (f"note: {note}" for note in report.notes)
    p = report.options.norm_type
    name = "max norm" if math.isinf(p) else f"L{p:g} norm"
    yield f"{report.judged.target}: {name} of each gradient{_at_step(report.measured)}"


def _at_step(measured: Measured) -> str:
    """ " at step 16 of 20"; beside passes that only ask for gradients, how many were measured."""
    many = len(measured.steps)
    if many < 2:
        return ""
    every = measured.steps[-1] == many - 1
    return f" at step {measured.step}" + (f" of {many}" if every else f" ({many} measured)")


def _parameters(report: NormReport, branches: Sequence[Branch]) -> Iterator[Column]:
    """What is empty in every row is left out, and the dtype where there is only one."""
    names = tuple("  " * one.indent + one.label for one in branches)
    yield Column("parameter", names)
    shares = tuple(report.share(one.row) for one in branches)
    drawn = tuple(
        0.0 if one.is_module else share or 0.0 for one, share in zip(branches, shares, strict=True)
    )
    columns: dict[str, Callable[[Row], str]] = {
        "shape": lambda row: "x".join(map(str, row.shape)) or str(row.numel),
        "norm": lambda row: "nan" if 0 < row.bad == row.numel else text_of(row.norm, 4),
        "share": lambda row: percent(share, 1) if (share := report.share(row)) is not None else "",
        "max |g|": lambda row: text_of(row.max_abs, 3),
        "zeros": lambda row: percent(row.zeros, row.numel) if row.numel else "",
        "dtype": lambda row: row.dtype,
        "bad": lambda row: f"{row.bad:,}" if row.bad else "",
        "upd/w": lambda row: "" if row.update is None else text_of(row.update, 2),
        "clipped": lambda row: "" if row.clipped is None else text_of(row.clipped, 4),
    }
    for name, cell in columns.items():
        of_modules = name in ("norm", "share", "clipped")
        cells = tuple(cell(one.row) if of_modules or not one.is_module else "" for one in branches)
        if name == "dtype" and len({row.dtype for row in report.measured.rows}) < 2:
            continue
        if any(cells):
            yield Column(name, cells, drawn if name == "share" else ())


def _clipping(report: NormReport) -> Iterator[str]:
    # Four decimals where they say something, else six figures.
    total = f"{report.total:.4f}" if 0.01 <= report.total < 1e9 else text_of(report.total)
    is_bad = any(row.bad for row in report.measured.rows)
    yield f"total {total}{', of the finite elements' if is_bad else ''}"
    if report.max_norm is None or report.coefficient is None or is_bad:
        return
    how = " (recommended below)" if report.options.max_norm is None else ""
    bound = f"max_norm {report.max_norm:g}{how}"
    if report.coefficient < 1:
        yield (
            f"{bound}: every gradient is multiplied by {report.coefficient:.6g}"
            f" = {report.max_norm:g} / {total}"
        )
    else:
        yield f"{bound}: nothing is clipped at this step"
    given = next((one for one in report.bounds if one.method == GIVEN and one.steps > 1), None)
    if given is not None:
        yield f"over the run {bound} clips {_clips(given)}"


def _clips(bound: Bound) -> str:
    """ "2 of 40 steps (5 %)": what a max_norm would have clipped."""
    steps = plural(bound.steps, "step")
    return f"{bound.clips:,} of {steps} ({percent(bound.clips, bound.steps)})"


def _values(report: NormReport) -> Iterator[str]:
    """Gradients of a few elements, written out when there are no more than a few of them."""
    rows = [row for row in report.measured.rows if row.values]
    if len(rows) != len(report.measured.rows) or len(rows) > _WRITTEN_OUT:
        return
    for row in rows:
        before, after = (", ".join(map(_element, v)) for v in (row.values, row.clipped_values))
        yield f"{row.name}.grad [{before}]" + (f" -> [{after}]" if after else "")


def _element(value: float) -> str:
    is_short = value == 0 or 1e-4 <= abs(value) < 1e7
    return f"{value:.4f}" if is_short else text_of(value, 4)


def _over_steps(report: NormReport, found: Distribution) -> Iterator[Section]:
    measured = report.measured
    if found.steps > 1:
        words = (
            f"total norm over {found.steps} steps: median {text_of(found.median, 4)},"
            f" p90 {text_of(found.p90, 4)}, p95 {text_of(found.p95, 4)},"
            f" max {text_of(found.max, 4)}"
        )
        listed = [f"step {step}: {text_of(norm, 4)}" for step, norm in found.spikes]
        more = len(listed) - _SPIKES_SHOWN
        spikes = f"spikes: {', '.join(listed[:_SPIKES_SHOWN])}" + (
            f" and {more} more" if more > 0 else ""
        )
        title, places = "Total norm by step", [str(step) for step in measured.steps]
        total = charts.Series("total norm", measured.totals)
        yield Section(
            title,
            (spikes,) if listed else (),
            (Curve(words, measured.totals),),
            picture=partial(charts.lines, title, [total], places, "step", report.max_norm),
        )
    proposed = [bound for bound in report.bounds if bound.method != GIVEN]
    yield Section(
        "max_norm from these steps",
        tuple(
            f"{'recommended max_norm' if bound is proposed[0] else f'{bound.method} would give'}"
            f" {text_of(bound.value)}: {bound.reason}; clips {_clips(bound)}"
            for bound in proposed
        ),
    )


def _by_depth(depth: Depth, fold: int | None, most: int | None) -> Section:
    listed: Sequence[LayerSize] = depth.layers
    if fold is not None:
        listed, most = fold_layers(listed, fold), None
    elif most is not None:
        listed = fitting(listed, most)
    title = "Layers in the order of the forward pass"
    drawn = fitting(depth.layers, _LAYERS_DRAWN)
    size = charts.Series("activation, rms", [layer.activation.rms for layer in drawn])
    gradient = charts.Series("gradient there, L2 norm", [layer.gradient for layer in drawn])
    return Section(
        title,
        (
            f"layers in the order of the forward pass at step {depth.step}: L2 norm and rms of what"
            " each gives, L2 norm of the gradient there",
        ),
        table=tuple(_without_middle(_layers(listed), most)),
        picture=partial(charts.dots, title, [gradient, size], [layer.layer for layer in drawn]),
    )


def _layers(shown: Sequence[LayerSize]) -> tuple[Column, ...]:
    sizes = [layer.activation.rms for layer in shown]
    gradients = [layer.gradient for layer in shown]
    # A module by its name, an op outside of all modules by its line: the folder is known.
    names = (one.layer if one.in_module else PurePath(one.layer).name for one in shown)
    return (
        Column("layer", tuple(names)),
        Column("op", tuple(one.op for one in shown)),
        Column("activation", tuple(text_of(one.activation.norm, 4) for one in shown)),
        Column("rms", tuple(text_of(rms, 3) for rms in sizes), bars.lengths(sizes)),
        Column(
            "gradient",
            tuple("none" if one is None else text_of(one, 4) for one in gradients),
            bars.lengths(gradients),
        ),
    )


def _without_middle(columns: tuple[Column, ...], most: int | None) -> Iterator[Column]:
    """The first and the last rows of a table that is too long, and how many stood between."""
    left_out = len(columns[0].cells) - most if most is not None else 0
    if most is None or left_out <= 0:
        yield from columns
        return
    head, tail = slice(most // 2), slice(-(most // 2), None)
    words = f"({left_out} more: --depth)"
    for one in columns:
        middle = words if one is columns[0] else ""
        lengths = (*one.lengths[head], 0.0, *one.lengths[tail]) if one.lengths else ()
        yield Column(one.name, (*one.cells[head], middle, *one.cells[tail]), lengths)


def _by_growth(growth: Growth) -> Section:
    unit = growth.unit
    title = f"By {unit}, from the loss to the input"
    words = (
        f"gradient by {unit}, the loss first: x{growth.factor:.3g} per {unit} over"
        f" {len(growth.norms)} (x{growth.low:.3g} to x{growth.high:.3g}), at step {growth.step}"
    )
    curves = [Curve(words, growth.norms, ends=True)]
    series = [charts.Series("gradient, L2 norm", growth.norms)]
    if growth.activations:
        factor = growth.activation_factor
        rate = "" if factor is None else f": x{factor:.3g} per {unit}"
        words = f"activation by {unit}, the loss first{rate}"
        curves.append(Curve(words, growth.activations, ends=True))
        series.append(charts.Series("activation, L2 norm", growth.activations))
    places, axis = [str(at) for at in range(len(growth.norms))], f"{unit}s away from the loss"
    return Section(
        title, curves=tuple(curves), picture=partial(charts.lines, title, series, places, axis)
    )
