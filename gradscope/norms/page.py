"""One self-contained HTML page: no script, no network, light and dark, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from gradscope.facts import Depth, Growth, percent, text_of
from gradscope.norms import charts
from gradscope.norms.facts import NormReport, Row
from gradscope.norms.rows import clipping, fitting
from gradscope.norms.terminal import at_step, norm_name, readable
from gradscope.report.html_parts import opening, prose, section, table, text_row
from gradscope.report.options import Options
from gradscope.report.text import sentence

_LAYERS_SHOWN = 60  # rows of the picture; the numbers below it are of all


def render(report: NormReport) -> str:
    return "\n".join(_page(report)) + "\n"


def _page(report: NormReport) -> Iterator[str]:
    title = escape(sentence(f"gradscope norms: {report.judged.target}"))
    yield opening(title, charts.STYLE)
    yield f"<header>\n<h1>{title}</h1>"
    yield from (f'<p class="dim">{prose(line)}</p>' for line in report.judged.said)
    yield from (f"<p>note: {prose(line)}</p>" for line in report.notes)
    yield from _summary(report)
    yield "</header>"
    for number, finding in enumerate(report.judged.findings, 1):
        yield from section(number, finding, Options().for_page())
    reason = charts.missing()
    if reason is not None:
        yield f'<p class="dim">{_without_pictures(reason)}</p>'
    yield from _measured(report, pictures=reason is None)
    kind = norm_name(report.options.norm_type)
    yield f"<h2>{kind} by parameter, at step {report.measured.step}</h2>"
    yield from _parameters(report)
    yield "</body>\n</html>"


def _without_pictures(reason: str) -> str:
    return (
        f"No pictures here: matplotlib cannot be imported ({prose(reason)}). "
        "<code>pip install matplotlib</code> brings it."
    )


def _measured(report: NormReport, *, pictures: bool) -> Iterator[str]:
    measured, magnitudes = report.measured, report.judged.trace.magnitudes
    if len(measured.totals) > 1 and pictures:
        title = "Total norm by step"
        total = charts.Series("total norm", measured.totals)
        steps = [str(step) for step in measured.steps]
        yield f"<h2>{title}</h2>"
        yield _scrolling(charts.lines(title, [total], steps, "step", report.max_norm))
    if magnitudes is None:
        return
    if magnitudes.depth is not None and magnitudes.depth.layers:
        yield from _by_layer(magnitudes.depth, pictures)
    if magnitudes.growths:
        yield from _growth(magnitudes.growths[-1], pictures)
    order = {row.name: at for at, row in enumerate(measured.rows)}
    leaves = [leaf for leaf in magnitudes.leaves if leaf.known]
    leaves.sort(key=lambda leaf: order.get(leaf.name, len(order)))
    if leaves and pictures:
        title = "L2 norm of each gradient by step"
        yield f"<h2>{title}</h2>"
        yield "<p>The lighter the larger, on a logarithmic scale. Nothing: no gradient.</p>"
        yield _scrolling(charts.heat_map(title, leaves))


def _summary(report: NormReport) -> Iterator[str]:
    said = f"Total {readable(report.total)}{at_step(report.measured)}."
    if report.max_norm is not None and report.coefficient is not None:
        said += f" With max_norm {report.max_norm:g} "
        said += (
            f"every gradient is multiplied by {report.coefficient:.6g}."
            if report.coefficient < 1
            else "nothing is clipped at this step."
        )
    yield f"<p>{prose(said)}</p>"
    found = report.distribution
    if found is not None and found.steps > 1:
        spread = f"median {text_of(found.median, 4)}, p90 {text_of(found.p90, 4)}"
        spread += f", p95 {text_of(found.p95, 4)}, max {text_of(found.max, 4)}"
        spikes = ", ".join(f"{text_of(norm, 4)} at step {step}" for step, norm in found.spikes[:5])
        yield f"<p>Over the steps: {spread}{f'; spikes: {spikes}' if spikes else ''}.</p>"
    if report.bounds:
        heads = ("", "max_norm", "clips", "from")
        rows = (
            ("recommended" if at == 0 else bound.method, text_of(bound.value, 4),
             clipping(bound), bound.reason)
            for at, bound in enumerate(report.bounds)
        )  # fmt: skip
        yield from table(heads, map(text_row, rows))


def _by_layer(depth: Depth, pictures: bool) -> Iterator[str]:
    title = f"Layers in the order of the forward pass, at step {depth.step}"
    yield f"<h2>{title}</h2>"
    if pictures:
        shown = fitting(depth.layers, _LAYERS_SHOWN)
        size = charts.Series("activation, rms", [layer.activation.rms for layer in shown])
        gradient = charts.Series("gradient there, L2 norm", [layer.gradient for layer in shown])
        yield _scrolling(charts.dots(title, [gradient, size], [layer.layer for layer in shown]))
    yield f"<details{'' if pictures else ' open'}><summary>the numbers</summary>"
    heads = ("layer", "op", "activation, L2 norm", "rms", "gradient, L2 norm")
    rows = (
        (
            layer.layer,
            layer.op,
            text_of(layer.activation.norm, 4),
            text_of(layer.activation.rms, 4),
            "none" if layer.gradient is None else text_of(layer.gradient, 4),
        )
        for layer in depth.layers
    )
    yield from table(heads, map(text_row, rows))
    yield "</details>"


def _growth(growth: Growth, pictures: bool) -> Iterator[str]:
    unit = growth.unit
    title = f"By {unit}, from the loss to the input"
    yield f"<h2>{title}</h2>"
    said = f"Gradient x{growth.factor:.3g} per {unit} (x{growth.low:.3g} to x{growth.high:.3g})"
    if growth.activation_factor is not None:
        said += f", activation x{growth.activation_factor:.3g} per {unit}"
    yield f"<p>{said}, at step {growth.step}.</p>"
    if pictures:
        series = [charts.Series("gradient, L2 norm", growth.norms)]
        if growth.activations:
            series.append(charts.Series("activation, L2 norm", growth.activations))
        places = [str(at) for at in range(len(growth.norms))]
        yield _scrolling(charts.lines(title, series, places, f"{unit}s away from the loss"))


def _parameters(report: NormReport) -> Iterator[str]:
    heads = ("parameter", "shape", "dtype", "norm", "share", "max |g|", "zeros", "not finite",
             "update / weight", "clipped")  # fmt: skip
    rows = [_cells(report, one) for one in report.measured.rows]
    filled = [at for at in range(len(heads)) if any(one[at] for one in rows)]
    shown = (text_row(one[at] for at in filled) for one in rows)
    return table([heads[at] for at in filled], shown)


def _cells(report: NormReport, row: Row) -> tuple[str, ...]:
    share = report.share(row)
    return (
        row.name,
        "x".join(map(str, row.shape)) or "scalar",
        row.dtype,
        text_of(row.norm, 4),
        "" if share is None else percent(share, 1),
        text_of(row.max_abs, 3),
        percent(row.zeros, row.numel) if row.numel else "",
        f"{row.bad:,}" if row.bad else "",
        "" if row.update is None else text_of(row.update, 2),
        "" if row.clipped is None else text_of(row.clipped, 4),
    )


def _scrolling(inner: str) -> str:
    """What is wider than a small screen scrolls on its own."""
    return f'<div class="scroll">{inner}</div>'
