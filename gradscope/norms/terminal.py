"""The norms as text: right at 80 columns, without colour, and in ASCII where it must be."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gradscope.facts import Finding, text_of
from gradscope.norms import bars, tables
from gradscope.norms.distribution import GIVEN
from gradscope.norms.facts import Measured, NormReport
from gradscope.norms.rows import arrange, clipping
from gradscope.report.frames import header
from gradscope.report.options import Options
from gradscope.report.terminal import STYLES
from gradscope.report.text import Line, Segment, clean, paragraph, wrap

_SPIKES_SHOWN = 5
_NARROWEST = 60
_WIDEST = 10_000


def render(
    report: NormReport, options: Options, *, depth: int | None = None, sort: str = "module"
) -> str:
    """The whole report, ending in a newline."""
    out = io.StringIO()
    width = max(options.width, _NARROWEST)
    console = Console(
        file=out,
        width=width,
        no_color=not options.color,
        force_terminal=options.color,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    plain = not _can(options.encoding, bars.SPARKS)
    look = tables.Look(options.encoding, plain)

    def say(lines: Iterator[str]) -> None:
        for line in lines:
            for part in _folded(clean(line, options.encoding), width):
                console.print(Text(part))

    say(_head(report))
    rows = arrange(report.measured.rows, report.options.norm_type, depth, sort)
    table = tables.parameters(report, rows, look, as_tree=sort == "module")
    if console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum > width:
        look_without = tables.Look(look.encoding, look.plain, bars=False)
        table = tables.parameters(report, rows, look_without, as_tree=sort == "module")
    console.print(table)
    say(_clipping(report))
    say(_values(report))
    say(_steps(report, console.width, plain))
    magnitudes = report.judged.trace.magnitudes
    if magnitudes is not None and magnitudes.depth is not None and magnitudes.depth.layers:
        say(_depth(magnitudes.depth.step))
        console.print(tables.layers(magnitudes.depth, look, depth))
    say(_growths(report, plain))
    for finding in report.judged.findings:
        for line in _finding(finding, replace(options, width=width)):
            console.print(Text.assemble(*((part.text, STYLES.get(part.role, "")) for part in line)))
    say(_more(report))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _folded(line: str, width: int) -> list[str]:
    """A line that is too long, its further lines indented below it."""
    if cell_len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip(" ")) + 2
    first, *rest = wrap(line.strip(), width - indent, used=-2)
    return [" " * (indent - 2) + first, *(" " * indent + part for part in rest)]


def _head(report: NormReport) -> Iterator[str]:
    yield from report.judged.said
    for note in report.notes:
        yield f"note: {note}"
    name = norm_name(report.options.norm_type)
    yield f"{report.judged.target}: {name} of each gradient{at_step(report.measured)}"


def at_step(measured: Measured) -> str:
    """ " at step 16 of 20"; beside passes that only ask for gradients, how many were measured."""
    many = len(measured.steps)
    if many < 2:
        return ""
    every = measured.steps[-1] == many - 1
    return f" at step {measured.step}" + (f" of {many}" if every else f" ({many} measured)")


def norm_name(p: float) -> str:
    return "max norm" if math.isinf(p) else f"L{p:g} norm"


def _clipping(report: NormReport) -> Iterator[str]:
    total = readable(report.total)
    yield f"total {total}"
    if report.max_norm is None or report.coefficient is None:
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
        yield f"over the run {bound} clips {clipping(given)}"


def readable(value: float) -> str:
    """Four decimals where they say something, else six figures."""
    return f"{value:.4f}" if 0.01 <= value < 1e9 else text_of(value)


def _values(report: NormReport) -> Iterator[str]:
    """Gradients of a few elements, written out when there are no more than a few of them."""
    rows = [row for row in report.measured.rows if row.values]
    if len(rows) != len(report.measured.rows) or len(rows) > 4:
        return
    for row in rows:
        before, after = (", ".join(map(_element, v)) for v in (row.values, row.clipped_values))
        yield f"{row.name}.grad [{before}]" + (f" -> [{after}]" if after else "")


def _element(value: float) -> str:
    is_short = value == 0 or 1e-4 <= abs(value) < 1e7
    return f"{value:.4f}" if is_short else text_of(value, 4)


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
        yield f"  {bars.sparkline(report.measured.totals, width - 4, plain)}"
        if found.spikes:
            shown = ", ".join(
                f"step {step}: {text_of(norm, 4)}" for step, norm in found.spikes[:_SPIKES_SHOWN]
            )
            more = len(found.spikes) - _SPIKES_SHOWN
            yield f"spikes: {shown}" + (f" and {more} more" if more > 0 else "")
    yield ""
    proposed = [bound for bound in report.bounds if bound.method != GIVEN]
    for position, bound in enumerate(proposed):
        lead = "recommended max_norm" if position == 0 else f"{bound.method} would give"
        yield f"{lead} {text_of(bound.value)}: {bound.reason}; clips {clipping(bound)}"


def _depth(step: int) -> Iterator[str]:
    yield ""
    yield (
        f"layers in the order of the forward pass at step {step}: L2 norm and rms of what each"
        " gives, L2 norm of the gradient there"
    )


def _growths(report: NormReport, plain: bool) -> Iterator[str]:
    magnitudes = report.judged.trace.magnitudes
    if magnitudes is None or not magnitudes.growths:
        return
    growth = magnitudes.growths[-1]
    unit = growth.unit
    yield ""
    yield (
        f"gradient by {unit}, the loss first: x{growth.factor:.3g} per {unit} over"
        f" {len(growth.norms)} (x{growth.low:.3g} to x{growth.high:.3g}), at step {growth.step}"
    )
    yield _profile(growth.norms, plain)
    if growth.activations:
        factor = growth.activation_factor
        rate = "" if factor is None else f": x{factor:.3g} per {unit}"
        yield f"activation by {unit}, the loss first{rate}"
        yield _profile(growth.activations, plain)


def _profile(norms: Sequence[float], plain: bool) -> str:
    ends = f"{text_of(norms[0], 3)} to {text_of(norms[-1], 3)}"
    return f"  {bars.sparkline(norms, _NARROWEST - 20, plain)}  {ends}"


def _finding(finding: Finding, options: Options) -> Iterator[Line]:
    """What and where, as in the report of a trace; that one has the rest."""
    severity = finding.severity.value
    yield ()
    lead = (Segment(f"{severity}[{finding.rule}] {finding.name}", severity), Segment(": "))
    yield from paragraph(lead, clean(finding.message, options.encoding), options.width, 4)
    if finding.location is not None:
        yield from header("-->", finding.location, 1, options)
    if finding.fixes:
        lead = (Segment("help", "help"), Segment(": "))
        yield from paragraph(lead, finding.fixes[0].title, options.width, 6)


def _more(report: NormReport) -> Iterator[str]:
    if report.judged.findings:
        yield "`gradscope trace` shows the place and tries the fixes"


def _can(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
