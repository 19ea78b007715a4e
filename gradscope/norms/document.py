"""The norms as JSON, described by schema.json in this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gradscope.facts import Leaf
from gradscope.norms.facts import NormReport
from gradscope.report.json_document import plain

SCHEMA = "gradscope-norms/1"

Records = Iterator[dict[str, Any]]


def as_json(report: NormReport) -> str:
    return json.dumps(plain(document(report)), indent=2, allow_nan=False) + "\n"


def document(report: NormReport) -> dict[str, Any]:
    """What the JSON holds; numbers may still be infinite or NaN."""
    found = report.distribution
    magnitudes = report.judged.trace.magnitudes
    depth = magnitudes.depth if magnitudes is not None else None
    spikes = [{"step": step, "total_norm": norm} for step, norm in found.spikes] if found else []
    return {
        "schema": SCHEMA,
        "target": report.judged.target,
        "norm_type": report.options.norm_type,
        "max_norm": report.max_norm,
        "max_norm_given": report.options.max_norm is not None,
        "step": report.measured.step,
        "total_norm": report.total,
        "torch_total_norm": report.measured.totals[report.measured.shown],
        "coefficient": report.coefficient,
        "parameters": list(_parameters(report)),
        "steps": list(_steps(report)),
        "distribution": asdict(found) | {"spikes": spikes} if found is not None else None,
        "bounds": list(_bounds(report)),
        "layers_step": depth.step if depth is not None else None,
        "layers": list(_layers(report)),
        "growth": list(_growth(report)),
        "norms_by_step": {leaf.name: leaf.norms for leaf in _leaves(report)},
        "findings": list(_findings(report)),
        "notes": [*report.judged.remarks, *report.notes],
    }


def _parameters(report: NormReport) -> Records:
    """Of the step that is shown."""
    names = (
        "name shape dtype numel norm share max_abs zeros bad update clipped values clipped_values"
    ).split()
    for row in report.measured.rows:
        yield {name: report.share(row) if name == "share" else getattr(row, name) for name in names}


def _steps(report: NormReport) -> Records:
    for step, total in zip(report.measured.steps, report.measured.totals, strict=True):
        yield {"step": step, "total_norm": total}


def _leaves(report: NormReport) -> tuple[Leaf, ...]:
    """Those that had a gradient at all."""
    magnitudes = report.judged.trace.magnitudes
    return tuple(leaf for leaf in magnitudes.leaves if leaf.known) if magnitudes else ()


def _bounds(report: NormReport) -> Records:
    for bound in report.bounds:
        yield {
            "method": bound.method,
            "max_norm": bound.value,
            "clips": bound.clips / bound.steps,
            "reason": bound.reason,
        }


def _layers(report: NormReport) -> Records:
    """In the order of the forward pass."""
    magnitudes = report.judged.trace.magnitudes
    for layer in magnitudes.depth.layers if magnitudes and magnitudes.depth else ():
        yield {
            "layer": layer.layer,
            "in_module": layer.in_module,
            "op": layer.op,
            "numel": layer.activation.numel,
            "activation_norm": layer.activation.norm,
            "activation_rms": layer.activation.rms,
            "gradient_norm": layer.gradient,
        }


def _growth(report: NormReport) -> Records:
    magnitudes = report.judged.trace.magnitudes
    for growth in magnitudes.growths if magnitudes else ():
        yield {
            "step": growth.step,
            "axis": growth.axis,
            "op": growth.call.op,
            "factor": growth.factor,
            "range": [growth.low, growth.high],
            "norms": growth.norms,
            "activation_factor": growth.activation_factor,
            "activations": growth.activations,
            "modules": growth.modules,
        }


def _findings(report: NormReport) -> Records:
    for finding in report.judged.findings:
        yield {
            "rule": finding.rule,
            "name": finding.name,
            "severity": finding.severity.value,
            "message": finding.message,
            "why": finding.why,
            "help": finding.fixes[0].title if finding.fixes else None,
            "file": finding.location.file if finding.location else None,
            "line": finding.location.line if finding.location else None,
        }
