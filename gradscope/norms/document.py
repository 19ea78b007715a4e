"""The norms as JSON (schema `gradscope-norms/1`) and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from gradscope.norms.facts import NormReport, Row

SCHEMA = "gradscope-norms/1"
SCHEMA_FILE = Path(__file__).with_name("schema.json")
COLUMNS = (
    "name", "shape", "dtype", "numel", "norm", "share", "max_abs", "zeros", "bad", "update",
    "clipped",
)  # fmt: skip


def as_json(report: NormReport) -> str:
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def as_csv(report: NormReport) -> str:
    """One line a parameter, of the step that is shown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in report.measured.rows:
        record = _row(report, row)
        shape = "x".join(map(str, row.shape))
        cells = {**record, "shape": shape, "name": _harmless(row.name)}
        writer.writerow("" if cells[column] is None else cells[column] for column in COLUMNS)
    return out.getvalue()


def document(report: NormReport) -> dict[str, Any]:
    found = report.distribution
    magnitudes = report.trace.magnitudes
    return {
        "schema": SCHEMA,
        "target": report.target,
        "norm_type": number(report.options.norm_type),
        "max_norm": number(report.max_norm),
        "max_norm_given": report.options.max_norm is not None,
        "step": report.measured.shown,
        "total_norm": number(report.total),
        "torch_total_norm": number(report.measured.totals[report.measured.shown]),
        "coefficient": number(report.coefficient),
        "parameters": [_row(report, row) for row in report.measured.rows],
        "steps": [
            {"step": step, "total_norm": number(total)}
            for step, total in enumerate(report.measured.totals)
        ],
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
        "bounds": [
            {"method": b.method, "max_norm": number(b.value), "clips": b.share, "reason": b.reason}
            for b in report.bounds
        ],
        "growth": [
            {
                "step": growth.step,
                "axis": growth.axis,
                "op": growth.call.op,
                "factor": number(growth.factor),
                "range": [number(growth.low), number(growth.high)],
                "norms": [number(norm) for norm in growth.norms],
            }
            for growth in (magnitudes.growths if magnitudes is not None else ())
        ],
        "norms_by_step": {
            leaf.name: [number(norm) for norm in leaf.norms]
            for leaf in (magnitudes.leaves if magnitudes is not None else ())
        },
        "findings": [
            {
                "rule": finding.rule,
                "name": finding.name,
                "severity": str(finding.severity),
                "message": finding.message,
                "file": finding.location.file if finding.location else None,
                "line": finding.location.line if finding.location else None,
            }
            for finding in report.findings
        ],
        "notes": list(report.notes),
    }


def number(value: float | None) -> float | str | None:
    """As in the report's contract: what is not finite is a string."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _row(report: NormReport, row: Row) -> dict[str, Any]:
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


def _harmless(text: str) -> str:
    """A cell that begins with one of these is a formula to a spreadsheet."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
