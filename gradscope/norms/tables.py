"""The two tables of the terminal: parameters, and layers by depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich.table import Table
from rich.text import Text

from gradscope.facts import Depth, LayerSize, percent, text_of
from gradscope.norms import bars
from gradscope.norms.facts import NormReport, Row
from gradscope.norms.rows import Branch, branches, fitting, fold_layers
from gradscope.report.text import clean

_LAYERS_SHOWN = 24
_NAME = 12  # cells that a name keeps in a narrow window
_LEFT = ("parameter", "layer", "op", "shape", "dtype", "")
_BAR, _BAD, _MODULE = "blue", "bold red", "bold"


@dataclass(frozen=True, slots=True)
class Look:
    """`plain`: no characters but ASCII."""

    encoding: str
    plain: bool
    bars: bool = True


def parameters(report: NormReport, rows: Sequence[Row], look: Look, *, as_tree: bool) -> Table:
    """One row a parameter, under those of the modules where `as_tree`."""
    lines = (
        branches(rows, report.options.norm_type)
        if as_tree
        else [Branch(row.name, 0, row, False) for row in rows]
    )
    many_dtypes = len({row.dtype for row in report.measured.rows}) > 1
    some_bad = any(row.bad for row in rows)
    updates = any(row.update is not None for row in rows)
    clipped = report.options.max_norm is not None
    columns = ["parameter", "shape", "norm", "share", *[""] * look.bars, "max |g|", "zeros"]
    columns += ["dtype"] * many_dtypes + ["bad"] * some_bad
    columns += ["upd/w"] * updates + ["clipped"] * clipped
    table = _table(columns, "parameter")
    for line in lines:
        row, own = line.row, not line.is_module
        share = report.share(row)
        name = clean("  " * line.indent + line.label, look.encoding)
        cells = [
            Text(name, style="" if own else _MODULE),
            Text(_shape(row) if own else ""),
            Text(text_of(row.norm, 4)),
            Text("" if share is None else percent(share, 1)),
        ]
        cells += [Text(bars.bar(share or 0.0, look.plain) if own else "", style=_BAR)] * look.bars
        cells += [
            Text(text_of(row.max_abs, 3) if own else ""),
            Text(percent(row.zeros, row.numel) if own and row.numel else ""),
        ]
        cells += [Text(row.dtype if own else "")] * many_dtypes
        cells += [Text(f"{row.bad}" if own else "", style=_BAD if row.bad else "")] * some_bad
        cells += [Text("" if row.update is None or not own else text_of(row.update, 2))] * updates
        cells += [Text("" if row.clipped is None else text_of(row.clipped, 4))] * clipped
        table.add_row(*cells)
    return table


def layers(depth: Depth, look: Look, fold: int | None) -> Table:
    """Activations beside gradients. Without `fold`, folded until the table can be read."""
    shown = (
        fitting(depth.layers, _LAYERS_SHOWN) if fold is None else fold_layers(depth.layers, fold)
    )
    table = _table(["layer", "op", "activation", "rms", "", "gradient", ""], "layer")
    sizes = bars.log_bars([layer.activation.rms for layer in shown], look.plain)
    gradients = bars.log_bars([layer.gradient for layer in shown], look.plain)
    rows = list(zip(shown, sizes, gradients, strict=True))
    left_out = len(rows) - _LAYERS_SHOWN if fold is None else 0
    if left_out > 0:
        half = _LAYERS_SHOWN // 2
        rows = [*rows[:half], *rows[-half:]]
    for at, (layer, size, gradient) in enumerate(rows):
        if left_out > 0 and at == _LAYERS_SHOWN // 2:
            table.add_row(f"({left_out} more: --depth)", *[""] * 6)
        table.add_row(
            Text(clean(_shown(layer), look.encoding)),
            Text(clean(layer.op, look.encoding)),
            _number(layer.activation.norm),
            _number(layer.activation.rms, 3),
            Text(size, style=_BAR),
            Text("none") if layer.gradient is None else _number(layer.gradient),
            Text(gradient, style=_BAR),
        )
    return table


def _shown(layer: LayerSize) -> str:
    """A module by its name, an op outside of all modules by its line: the folder is known."""
    return layer.layer if layer.in_module else PurePath(layer.layer).name


def _number(value: float, digits: int = 4) -> Text:
    return Text(text_of(value, digits), style="" if math.isfinite(value) else _BAD)


def _table(columns: Sequence[str], name: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="left" if column in _LEFT else "right",
            no_wrap=column != name,
            overflow="fold",
            min_width=_NAME if column == name else None,
        )
    return table


def _shape(row: Row) -> str:
    return "x".join(map(str, row.shape)) or str(row.numel)
