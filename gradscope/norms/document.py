"""The norms as JSON (schema `gradscope-norms/1`), and its tables as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gradscope.facts import Finding, Growth, LayerSize, Leaf, text_of
from gradscope.norms.facts import NormReport, Row

SCHEMA = "gradscope-norms/1"
SCHEMA_FILE = Path(__file__).with_name("schema.json")


def as_json(report: NormReport) -> str:
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def as_csv(report: NormReport, table: str) -> str:
    """One of `TABLES`. A list in a cell has spaces between its entries, a shape has x."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns, records = TABLES[table]
    writer.writerow(columns)
    for record in records(report):
        writer.writerow(_cell(column, record[column]) for column in columns)
    return out.getvalue()


def document(report: NormReport) -> dict[str, Any]:
    found = report.distribution
    magnitudes = report.judged.trace.magnitudes
    depth = magnitudes.depth if magnitudes is not None else None
    return {
        "schema": SCHEMA,
        "target": report.judged.target,
        "norm_type": number(report.options.norm_type),
        "max_norm": number(report.max_norm),
        "max_norm_given": report.options.max_norm is not None,
        "step": report.measured.step,
        "total_norm": number(report.total),
        "torch_total_norm": number(report.measured.totals[report.measured.shown]),
        "coefficient": number(report.coefficient),
        "parameters": list(_parameters(report)),
        "steps": list(_steps(report)),
        "distribution": None
        if found is None
        else {
            "steps": found.steps,
            "finite": found.finite,
            "median": number(found.median),
            "p90": number(found.p90),
            "p95": number(found.p95),
            "max": number(found.max),
            "spikes": [{"step": step, "total_norm": number(norm)} for step, norm in found.spikes],
        },
        "bounds": list(_bounds(report)),
        "layers_step": depth.step if depth is not None else None,
        "layers": list(_layers(report)),
        "growth": list(_growth(report)),
        "norms_by_step": {
            leaf.name: [number(norm) for norm in leaf.norms] for leaf in _leaves(report)
        },
        "findings": list(_findings(report)),
        "notes": [*report.judged.said, *report.notes],
    }


def number(value: float | None) -> float | str | None:
    """As in the report's contract: what is not finite is a string."""
    return value if value is None or math.isfinite(value) else text_of(value)


Records = Iterator[dict[str, Any]]


def _parameters(report: NormReport) -> Records:
    """Of the step that is shown."""
    return (_parameter(report, row) for row in report.measured.rows)


def _parameter(report: NormReport, row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "shape": list(row.shape),
        "dtype": row.dtype,
        "numel": row.numel,
        "norm": number(row.norm),
        "share": number(report.share(row)),
        "max_abs": number(row.max_abs),
        "zeros": row.zeros,
        "bad": row.bad,
        "update": number(row.update),
        "clipped": number(row.clipped),
        "values": [number(value) for value in row.values],
        "clipped_values": [number(value) for value in row.clipped_values],
    }


def _steps(report: NormReport) -> Records:
    for step, total in zip(report.measured.steps, report.measured.totals, strict=True):
        yield {"step": step, "total_norm": number(total)}


def _leaves(report: NormReport) -> tuple[Leaf, ...]:
    """Those that had a gradient at all."""
    magnitudes = report.judged.trace.magnitudes
    return tuple(leaf for leaf in magnitudes.leaves if leaf.known) if magnitudes else ()


def _history(report: NormReport) -> Records:
    for leaf in _leaves(report):
        for step, norm in enumerate(leaf.norms):
            if norm is not None:
                yield {"name": leaf.name, "step": step, "norm": number(norm)}


def _bounds(report: NormReport) -> Records:
    for bound in report.bounds:
        yield {
            "method": bound.method,
            "max_norm": number(bound.value),
            "clips": bound.clips / bound.steps,
            "reason": bound.reason,
        }


def _layers(report: NormReport) -> Records:
    """In the order of the forward pass."""
    magnitudes = report.judged.trace.magnitudes
    if magnitudes is not None and magnitudes.depth is not None:
        yield from map(_layer, magnitudes.depth.layers)


def _layer(layer: LayerSize) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "in_module": layer.in_module,
        "op": layer.op,
        "numel": layer.activation.numel,
        "activation_norm": number(layer.activation.norm),
        "activation_rms": number(layer.activation.rms),
        "gradient_norm": number(layer.gradient),
    }


def _growth(report: NormReport) -> Records:
    magnitudes = report.judged.trace.magnitudes
    return map(_one_growth, magnitudes.growths if magnitudes is not None else ())


def _one_growth(growth: Growth) -> dict[str, Any]:
    return {
        "step": growth.step,
        "axis": growth.axis,
        "op": growth.call.op,
        "factor": number(growth.factor),
        "range": [number(growth.low), number(growth.high)],
        "norms": [number(norm) for norm in growth.norms],
        "activation_factor": number(growth.activation_factor),
        "activations": [number(norm) for norm in growth.activations],
        "modules": list(growth.modules),
    }


def _findings(report: NormReport) -> Records:
    return map(_finding, report.judged.findings)


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
        "why": finding.why,
        "help": finding.fixes[0].title if finding.fixes else None,
        "file": finding.location.file if finding.location else None,
        "line": finding.location.line if finding.location else None,
    }


# Each table of the CSV: its columns, which are keys of the JSON, and its records.
TABLES: dict[str, tuple[tuple[str, ...], Callable[[NormReport], Records]]] = {
    "parameters": (
        ("name", "shape", "dtype", "numel", "norm", "share", "max_abs", "zeros", "bad", "update",
         "clipped"),
        _parameters,
    ),
    "steps": (("step", "total_norm"), _steps),
    "norms-by-step": (("name", "step", "norm"), _history),
    "bounds": (("method", "max_norm", "clips", "reason"), _bounds),
    "layers": (
        ("layer", "op", "numel", "activation_norm", "activation_rms", "gradient_norm"),
        _layers,
    ),
    "growth": (
        ("step", "axis", "op", "factor", "range", "norms", "activation_factor", "activations"),
        _growth,
    ),
    "findings": (("rule", "name", "severity", "message", "why", "help", "file", "line"), _findings),
}  # fmt: skip


def _cell(column: str, value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, list):
        return ("x" if column == "shape" else " ").join(map(str, value))
    return _harmless(value) if isinstance(value, str) else value


def _harmless(text: str) -> str:
    """A cell that begins with one of these is a formula to a spreadsheet; "-inf" is none."""
    is_formula = text.startswith(("=", "+", "-", "@", "\t", "\r")) and text != "-inf"
    return f"'{text}" if is_formula else text
