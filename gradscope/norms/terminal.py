"""The norms as text: right at 80 columns, without colour, and in ASCII where it must be."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradscope.facts import Growth, text_of
from gradscope.norms.facts import NormReport, Row
from gradscope.norms.rows import arrange
from gradscope.report.options import Options
from gradscope.report.text import clean

_BAR = 10
_SPARKS = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS = "_.-=+*%#"
_SPIKES_SHOWN = 5


def render(
    report: NormReport, options: Options, *, depth: int | None = None, sort: str = "module"
) -> str:
    """The whole report, ending in a newline."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(options.width, 60),
        no_color=not options.color,
        force_terminal=options.color,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    plain = not _can(options.encoding, _SPARKS)
    for line in _head(report):
        console.print(Text(clean(line, options.encoding)))
    rows = arrange(report.measured.rows, report.options.norm_type, depth, sort)
    console.print(_table(report, rows, options, plain))
    for line in (
        *_clipping(report),
        *_values(report),
        *_steps(report, console.width, plain),
        *_growths(report, plain),
        *_findings(report),
    ):
        console.print(Text(clean(line, options.encoding)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _head(report: NormReport) -> Iterator[str]:
    yield from report.said
    for note in report.notes:
        yield f"note: {note}"
    steps = len(report.measured.totals)
    shown = report.measured.shown
    which = "" if steps == 1 else f" at step {shown} of {steps}"
    yield f"{report.target}: {norm_name(report.options.norm_type)} of each gradient{which}"


def norm_name(p: float) -> str:
    return "max norm" if math.isinf(p) else f"L{p:g} norm"


def _table(report: NormReport, rows: Sequence[Row], options: Options, plain: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    dtypes = {row.dtype for row in report.measured.rows}
    updates = any(row.update is not None for row in rows)
    clipped = any(row.clipped is not None for row in rows) and _clips(report)
    columns = ["parameter", "shape", "norm", "share", "", "max |g|", "zeros"]
    columns += ["dtype"] * (len(dtypes) > 1)
    columns += ["bad"] * any(row.bad for row in rows)
    columns += ["upd/w"] * updates + ["clipped"] * clipped
    for column in columns:
        right = column not in ("parameter", "shape", "", "dtype")
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=column != "parameter",
            overflow="fold",
            min_width=12 if column == "parameter" else None,
        )
    for row in rows:
        share = report.share(row)
        cells = [
            clean(row.name, options.encoding),
            "x".join(map(str, row.shape)) or str(row.numel),
            text_of(row.norm, 4),
            "" if share is None else f"{share:.1%}",
            bar(share or 0.0, plain),
            text_of(row.max_abs, 3),
            f"{row.zeros / row.numel:.0%}" if row.numel else "",
        ]
        cells += [row.dtype] * (len(dtypes) > 1)
        cells += [f"{row.bad}"] * any(one.bad for one in rows)
        cells += ["" if row.update is None else text_of(row.update, 2)] * updates
        cells += ["" if row.clipped is None else text_of(row.clipped, 4)] * clipped
        table.add_row(*map(Text, cells))
    return table


def bar(share: float, plain: bool = False, width: int = _BAR) -> str:
    """A bar of eighths of a cell; something is always seen of what is not 0."""
    if share <= 0:
        return ""
    if plain:
        return "#" * max(1, round(min(share, 1.0) * width))
    eighths = max(1, round(min(share, 1.0) * width * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def sparkline(values: Sequence[float], width: int, plain: bool = False) -> str:
    """One character a value or a group of values (its largest), on a logarithmic scale. What is
    not finite is `!`, zero a space."""
    marks = _ASCII_SPARKS if plain else _SPARKS
    size = max(1, math.ceil(len(values) / width))
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    tops = [max(group, key=lambda one: (not math.isfinite(one), one)) for group in groups]
    logs = [math.log10(top) for top in tops if math.isfinite(top) and top > 0]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    return "".join(_mark(top, low, high, marks) for top in tops)


def _mark(value: float, low: float, high: float, marks: str) -> str:
    if not math.isfinite(value):
        return "!"
    if value <= 0:
        return " "
    place = (math.log10(value) - low) / (high - low) if high > low else 0.5
    return marks[min(int(place * len(marks)), len(marks) - 1)]


def _clips(report: NormReport) -> bool:
    return report.options.max_norm is not None


def _clipping(report: NormReport) -> Iterator[str]:
    total = readable(report.total)
    yield f"total {total}"
    if report.max_norm is None or report.coefficient is None:
        return
    how = "" if _clips(report) else " (recommended below)"
    bound = f"max_norm {report.max_norm:g}{how}"
    if report.coefficient < 1:
        yield (
            f"{bound}: every gradient is multiplied by {report.coefficient:.6g}"
            f" = {report.max_norm:g} / {total}"
        )
    else:
        yield f"{bound}: nothing is clipped at this step"


def readable(value: float) -> str:
    """Four decimals where they say something, else six figures."""
    return f"{value:.4f}" if 0.01 <= value < 1e9 else text_of(value)


def _values(report: NormReport) -> Iterator[str]:
    """Gradients of a few elements, written out when there are no more than a few of them."""
    rows = [row for row in report.measured.rows if row.values]
    if len(rows) != len(report.measured.rows) or len(rows) > 4:
        return
    for row in rows:
        before = ", ".join(f"{value:.4f}" for value in row.values)
        after = ", ".join(f"{value:.4f}" for value in row.clipped_values)
        yield f"{row.name}.grad [{before}]" + (f" -> [{after}]" if after else "")


def _steps(report: NormReport, width: int, plain: bool) -> Iterator[str]:
    found = report.distribution
    if found is None:
        return
    if found.steps > 1:
        yield ""
        yield (
            f"total norm over {found.steps} steps: median {text_of(found.median, 4)},"
            f" p90 {text_of(found.p90, 4)}, p95 {text_of(found.p95, 4)},"
            f" max {text_of(found.max, 4)}"
        )
        yield f"  {sparkline(report.measured.totals, width - 4, plain)}"
        if found.spikes:
            shown = ", ".join(
                f"step {step}: {text_of(norm, 4)}" for step, norm in found.spikes[:_SPIKES_SHOWN]
            )
            more = len(found.spikes) - _SPIKES_SHOWN
            yield f"spikes: {shown}" + (f" and {more} more" if more > 0 else "")
    yield ""
    for position, bound in enumerate(report.bounds):
        lead = "recommended max_norm" if position == 0 else f"{bound.method} would give"
        yield (
            f"{lead} {text_of(bound.value, 4)}: {bound.reason};"
            f" clips {bound.share:.0%} of the steps"
        )


def _growths(report: NormReport, plain: bool) -> Iterator[str]:
    magnitudes = report.trace.magnitudes
    if magnitudes is None or not magnitudes.growths:
        return
    growth: Growth = magnitudes.growths[-1]
    unit = "layer" if growth.axis == "depth" else "step"
    yield ""
    yield (
        f"gradient by {unit}, the loss first: x{growth.factor:.3g} per {unit} over"
        f" {len(growth.norms)} (x{growth.low:.3g} to x{growth.high:.3g}), at step {growth.step}"
    )
    yield f"  {sparkline(growth.norms, 60, plain)}  {growth.norms[0]:.2e} to {growth.norms[-1]:.2e}"


def _findings(report: NormReport) -> Iterator[str]:
    for finding in report.findings:
        place = finding.location
        where = f"{place.file}:{place.line}: " if place is not None else ""
        yield ""
        yield f"{where}{finding.severity}[{finding.rule}] {finding.name}: {finding.message}"
        if finding.fixes:
            yield f"  help: {finding.fixes[0].title}"
    if report.findings:
        yield "`gradscope trace` shows the place and tries the fixes"


def _can(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
