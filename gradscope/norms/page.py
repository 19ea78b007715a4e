"""One self-contained HTML page: no script, no network, light and dark, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from gradscope.facts import text_of
from gradscope.norms.facts import NormReport, Row
from gradscope.norms.terminal import norm_name, readable

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 220, 70, 30
_CELL = 16
_MOST_COLUMNS = 100  # steps that the heat map shows: more are joined, the largest norm counts

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #767676; --line: #2a62a8;
  --bad: #b3261e; --rule: #ddd }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181c; --soft: #9a9a9a;
  --line: #7fb2f0; --bad: #ff8a80; --rule: #3a3d42 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 920px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100% }
th, td { text-align: right; padding: .15em .5em; border-bottom: 1px solid var(--rule) }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere }
.scroll { overflow-x: auto } svg { max-width: 100%; height: auto } svg.map { max-width: none }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif }
.axis { stroke: var(--soft) } .line { stroke: var(--line); fill: none; stroke-width: 1.5 }
.dot { fill: var(--line) } .bad { fill: var(--bad) } .bound { stroke: var(--ink);
  stroke-dasharray: 5 4 } .bar { fill: var(--line) }
.finding { padding: .2em 1em; margin: 1em 0; border-left: 4px solid var(--soft) }
.finding.error { border-color: var(--bad) }
"""


def render(report: NormReport) -> str:
    return "\n".join(_page(report)) + "\n"


def _page(report: NormReport) -> Iterator[str]:
    title = escape(f"gradscope norms: {report.target}")
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
    for line in (*report.said, *(f"note: {note}" for note in report.notes)):
        yield f"<p>{escape(line)}</p>"
    yield from _summary(report)
    for finding in report.findings:
        place = finding.location
        where = f" ({place.file}:{place.line})" if place is not None else ""
        yield f'<div class="finding {finding.severity}"><b>{finding.rule} {finding.name}</b>'
        yield f"{escape(where)}<br>{escape(finding.message)}<br>{escape(finding.why)}"
        yield "".join(f"<br>help: {escape(fix.title)}" for fix in finding.fixes[:1]) + "</div>"
    if len(report.measured.totals) > 1:
        yield "<h2>Total norm by step</h2>"
        yield _line(report.measured.totals, report.max_norm, "step")
    magnitudes = report.trace.magnitudes
    if magnitudes is not None and magnitudes.growths:
        growth = magnitudes.growths[-1]
        unit = "layer" if growth.axis == "depth" else "time step"
        yield f"<h2>Gradient by {unit}, from the loss to the input</h2>"
        yield f"<p>x{growth.factor:.3g} per {unit}, at step {growth.step}</p>"
        yield _line(growth.norms, None, unit)
    if magnitudes is not None and magnitudes.leaves:
        yield "<h2>log10 of the gradient's norm, by parameter and step</h2>"
        yield "<p>Darker is smaller. A cross: not finite. An empty cell: no gradient.</p>"
        yield '<div class="scroll">' + _heat_map(report) + "</div>"
    yield f"<h2>{norm_name(report.options.norm_type)} by parameter</h2>"
    yield '<div class="scroll">' + "".join(_table(report)) + "</div>"
    yield "</body></html>"


def _summary(report: NormReport) -> Iterator[str]:
    step = report.measured.step
    yield f"<p>Total {readable(report.total)} at step {step} of {len(report.measured.totals)}."
    if report.max_norm is not None and report.coefficient is not None:
        yield f" With max_norm {report.max_norm:g} every gradient is multiplied by"
        yield f" {report.coefficient:.6g}."
    yield "</p>"
    if report.bounds:
        yield "<ul>"
        for bound in report.bounds:
            yield (
                f"<li>{escape(bound.method)}: max_norm {text_of(bound.value, 4)},"
                f" {escape(bound.reason)}; clips {bound.share:.0%} of the steps</li>"
            )
        yield "</ul>"


def _line(values: Sequence[float], bound: float | None, unit: str) -> str:
    """A line on a logarithmic scale. Values that are not finite are crosses along the top."""
    logs = [math.log10(value) for value in values if math.isfinite(value) and value > 0]
    if bound is not None:
        logs.append(math.log10(bound))
    low = math.floor(min(logs, default=0.0))
    high = max(math.ceil(max(logs, default=1.0)), low + 1)
    across, up = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - 10

    def x(position: int) -> float:
        return _LEFT + across * position / max(len(values) - 1, 1)

    def y(value: float) -> float:
        return 10 + up * (high - math.log10(value)) / (high - low)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">']
    every = max(1, (high - low) // 5)
    for power in range(low, high + 1, every):
        place = y(10.0**power) if -300 < power < 300 else 10
        parts.append(
            f'<text x="{_LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">1e{power}</text>'
        )
        parts.append(
            f'<line class="axis" x1="{_LEFT - 4}" x2="{_LEFT}" y1="{place:.1f}" y2="{place:.1f}"/>'
        )
    points = [(x(at), y(v)) for at, v in enumerate(values) if math.isfinite(v) and v > 0]
    path = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
    parts.append(f'<polyline class="line" points="{path}"/>')
    if len(points) <= 120:
        parts += [f'<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in points]
    if bound is not None:
        place = y(bound)
        parts.append(
            f'<line class="bound" x1="{_LEFT}" x2="{_WIDTH - 10}"'
            f' y1="{place:.1f}" y2="{place:.1f}"/>'
            f'<text x="{_WIDTH - 12}" y="{place - 4:.1f}" text-anchor="end">'
            f"max_norm {bound:g}</text>"
        )
    for at, value in enumerate(values):
        if not math.isfinite(value):
            parts.append(f'<text class="bad" x="{x(at):.1f}" y="12" text-anchor="middle">✕</text>')
    label = f"{unit} 0 to {len(values) - 1}"
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{label}</text></svg>')
    return "".join(parts)


def _heat_map(report: NormReport) -> str:
    magnitudes = report.trace.magnitudes
    assert magnitudes is not None
    steps = len(report.measured.totals)
    joined = max(1, math.ceil(steps / _MOST_COLUMNS))
    known = [norm for leaf in magnitudes.leaves for norm in leaf.known if 0 < norm < math.inf]
    low = math.log10(min(known, default=1.0))
    high = math.log10(max(known, default=1.0))
    names = max((len(leaf.name) for leaf in magnitudes.leaves), default=0)
    left = min(names, 60) * 6 + 10
    columns = math.ceil(steps / joined)
    width, height = left + columns * _CELL, len(magnitudes.leaves) * _CELL
    parts = [f'<svg class="map" width="{width}" height="{height}" role="img">']
    for line, leaf in enumerate(magnitudes.leaves):
        top = line * _CELL
        shown = leaf.name if len(leaf.name) <= 60 else "…" + leaf.name[-59:]
        parts.append(
            f'<text x="{left - 6}" y="{top + 12}" text-anchor="end">{escape(shown)}</text>'
        )
        for column in range(columns):
            norms = [
                n for n in leaf.norms[column * joined : (column + 1) * joined] if n is not None
            ]
            if norms:
                parts.append(
                    _cell(left + column * _CELL, top, norms, low, high, leaf.name, column * joined)
                )
    return "".join(parts) + "</svg>"


def _cell(
    left: int, top: int, norms: Sequence[float], low: float, high: float, name: str, step: int
) -> str:
    worst = max(norms, key=lambda norm: (not math.isfinite(norm), norm))
    tip = f"<title>{escape(name)}, step {step}: {text_of(worst, 4)}</title>"
    box = f'x="{left}" y="{top}" width="{_CELL - 1}" height="{_CELL - 1}"'
    if not math.isfinite(worst):
        mark = f'<text class="bad" x="{left + 7}" y="{top + 12}" text-anchor="middle">✕</text>'
        return f'<g>{tip}<rect {box} fill="none" stroke="currentColor"/>{mark}</g>'
    if worst == 0:
        return f'<rect {box} fill="#000">{tip}</rect>'
    light = 18 + 72 * ((math.log10(worst) - low) / (high - low) if high > low else 0.5)
    return f'<rect {box} fill="hsl(214 60% {light:.0f}%)">{tip}</rect>'


def _table(report: NormReport) -> Iterator[str]:
    heads = ("parameter", "shape", "dtype", "norm", "share", "max |g|", "zeros", "not finite",
             "update / weight", "clipped")  # fmt: skip
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for row in report.measured.rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(report, row)) + "</tr>"
    yield "</table>"


def _cells(report: NormReport, row: Row) -> tuple[str, ...]:
    share = report.share(row)
    return (
        row.name,
        "x".join(map(str, row.shape)) or "scalar",
        row.dtype,
        text_of(row.norm, 4),
        "" if share is None else f"{share:.1%}",
        text_of(row.max_abs, 3),
        f"{row.zeros / row.numel:.0%}" if row.numel else "",
        str(row.bad),
        "" if row.update is None else text_of(row.update, 2),
        "" if row.clipped is None else text_of(row.clipped, 4),
    )
