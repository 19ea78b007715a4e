"""The JSON schema of gradscope.yaml, for editors: made of what each key may hold."""

from collections.abc import Mapping
from typing import Any

from gradscope.config import Config, inputs, keys, scalars
from gradscope.config.scalars import Key, Reader
from gradscope.facts import Severity

Schema = dict[str, Any]


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _one_or_many(one: Schema) -> Schema:
    return {"anyOf": [{"type": "array", "items": one}, one]}


# What each reader takes.
_TAKEN: dict[Reader, Schema] = {
    scalars.count: {"type": "integer", "minimum": 1},
    scalars.finite: {"type": "number"},
    scalars.flag: {"type": "boolean"},
    scalars.positive: {"type": "number", "exclusiveMinimum": 0},
    scalars.text: {"type": "string"},
    scalars.texts: _one_or_many({"type": ["string", "number"]}),
    keys.precisions: _one_or_many({"enum": [*keys.PRECISIONS]}),
    keys.seconds: {"type": "number", "exclusiveMinimum": 0},
    keys.severity: {"enum": [str(one) for one in Severity]},
    keys.size: {"type": ["integer", "string"]},
    inputs.dtype: {"enum": [*inputs.FLOATING, *inputs.WHOLE, *inputs.COMPLEX]},
    inputs.ends: {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    inputs.inputs: {"type": "object", "additionalProperties": {"$ref": "#/$defs/input"}},
    inputs.numbers: {"type": ["array", "number", "boolean"]},
    inputs.seed: {"type": "integer"},
    inputs.shape: {"type": "array", "items": {"type": "integer", "minimum": 0}},
}


def _described(found: Mapping[str, Key]) -> Schema:
    return {key: {**_TAKEN[one.read], "description": one.words} for key, one in found.items()}


_TAKEN[keys.thresholds] = _object(_described(keys.THRESHOLDS))


def schema() -> Schema:
    """The schema of a whole configuration file."""
    top, defaults = _described(keys.KEYS), Config()
    for key, one in top.items():
        if isinstance(value := getattr(defaults, key.replace("-", "_")), bool | int | float | str):
            one["default"] = value
    own = {key: one for key, one in keys.TARGET_KEYS.items() if key not in top}
    entry: Schema = {key: {"$ref": f"#/properties/{key}"} for key in keys.TARGET_KEYS}
    entry |= _described(own)
    items = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/target"}]}
    words = "What `gradscope check` runs. An entry sets for itself what the file sets for all."
    top["targets"] = {"type": "array", "description": words, "items": items}
    plain = {"type": ["string", "number", "boolean", "null", "array"]}
    tensor = _object(_described(inputs.TENSOR_KEYS))
    words = "A Python expression with torch in scope, a value, or a tensor described."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:gradscope:config:1",
        "title": "gradscope configuration",
        "description": "gradscope.yaml, or [tool.gradscope] in pyproject.toml.",
        **_object(top),
        "type": ["object", "null"],
        "$defs": {
            "target": _object(entry),
            "input": {"description": words, "anyOf": [plain, tensor]},
        },
    }
