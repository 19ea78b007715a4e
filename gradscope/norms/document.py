"""The norms as JSON, described by schema.json in this folder."""

import json
from dataclasses import asdict
from typing import Any

from gradscope.facts import Finding, Growth, LayerSize
from gradscope.norms.facts import Bound, NormReport, Row
from gradscope.report.json_document import named, plain

SCHEMA = "gradscope-norms/1"

Record = dict[str, Any]


def as_json(report: NormReport) -> str:
    return json.dumps(plain(document(report)), indent=2, allow_nan=False) + "\n"


def document(report: NormReport) -> dict[str, Any]:
    """What the JSON holds; numbers may still be infinite or NaN."""
    found, measured = report.distribution, report.measured
    sizes, depth = report.sizes, report.sizes.depth
    spikes = [{"step": step, "total_norm": norm} for step, norm in found.spikes] if found else []
    totals = zip(measured.steps, measured.totals, strict=True)
    return {
        "schema": SCHEMA,
        "target": report.judged.target,
        "norm_type": report.options.norm_type,
        "max_norm": report.max_norm,
        "max_norm_given": report.options.max_norm is not None,
        "step": measured.step,
        "total_norm": report.total,
        "torch_total_norm": measured.totals[measured.shown],
        "coefficient": report.coefficient,
        "parameters": [_parameter(row, report.share(row)) for row in measured.rows],
        "steps": [{"step": step, "total_norm": total} for step, total in totals],
        "distribution": asdict(found) | {"spikes": spikes} if found is not None else None,
        "bounds": list(map(_bound, report.bounds)),
        "layers_step": depth.step if depth is not None else None,
        "layers": list(map(_layer, depth.layers if depth is not None else ())),
        "growth": list(map(_growth, sizes.growths)),
        "norms_by_step": {leaf.name: leaf.norms for leaf in sizes.leaves if leaf.known},
        "findings": list(map(_finding, report.judged.findings)),
        "notes": [*report.judged.remarks, *report.notes],
    }


def _parameter(row: Row, share: float | None) -> Record:
    """One parameter, at the step that is shown."""
    rest = "max_abs zeros bad update clipped values clipped_values"
    return {**named(row, "name shape dtype numel norm"), "share": share, **named(row, rest)}


def _bound(bound: Bound) -> Record:
    clips = bound.clips / bound.steps
    return {"method": bound.method, "max_norm": bound.value, "clips": clips, "reason": bound.reason}


def _layer(layer: LayerSize) -> Record:
    """One layer; they come in the order of the forward pass."""
    return {
        **named(layer, "layer in_module op"),
        "numel": layer.activation.numel,
        "activation_norm": layer.activation.norm,
        "activation_rms": layer.activation.rms,
        "gradient_norm": layer.gradient,
    }


def _growth(growth: Growth) -> Record:
    return {
        **named(growth, "step axis"),
        "op": growth.call.op,
        "factor": growth.factor,
        "range": [growth.low, growth.high],
        **named(growth, "norms activation_factor activations modules"),
    }


def _finding(finding: Finding) -> Record:
    return {
        **named(finding, "rule name severity message why"),
        "help": finding.fixes[0].title if finding.fixes else None,
        "file": finding.location.file if finding.location else None,
        "line": finding.location.line if finding.location else None,
    }
