"""The JSON schema of gradscope.yaml, for editors: made of what reads each key."""

from collections.abc import Mapping
from typing import Any

from gradscope.config import inputs, keys, scalars
from gradscope.config.scalars import Reader
from gradscope.facts import Severity

Schema = dict[str, Any]

KEYS = {
    "name": "What reports call it; each has its own.",
    "target": "FILE.py, FILE.py:FUNCTION, package.module:FUNCTION or a built-in example. Relative "
    "to this file.",
    "args": "Arguments of a script.",
    "model": "A model: net.py:Net, or net.py:Net(3).",
    "loss": "Its loss: net.py:loss, or F.mse_loss.",
    "batch": "Its batch: net.py:batch, or a loader.",
    "inputs": "Inputs of a function, by name.",
    "steps": "Stop after so many updates, or backward passes in a program without an optimizer.",
    "every-step": "Look at each op of every step, which is slow, and not of a few only.",
    "keep-going": "Do not stop at the first error (false).",
    "verify": "Try the fixes (true).",
    "verify-time": "Seconds that trying all fixes of a target may take (60).",
    "verify-runs": "How often a target may be run again to try its fixes (10).",
    "rerun": "Run a target again though it connects, starts processes or deletes files (false).",
    "custom-backward": "Compare custom autograd.Functions with a numerical derivative (true).",
    "time-limit": "Seconds that each target may take (check: 300).",
    "fail-on": "Exit with 1 for findings from here on (error).",
    "select": "Only these rules: a code, a name, or a family such as GS1.",
    "ignore": "Not these rules.",
    "device": "torch's default device for each run, such as cuda.",
    "dtypes": "Run each target in each of these.",
    "thresholds": "Limits on every step of a healthy run.",
    "memory-limit": "Memory that each target may take on top of torch, such as 2 GiB (Linux).",
    "stress": "Look for inputs of a function whose loss is finite and whose gradient is not "
    "(false).",
    "baseline": "A file of accepted findings, written by check --write-baseline.",
    "jobs": "Targets at a time (one a core).",
    "targets": "What `gradscope check` runs. An entry sets for itself what the file sets for all.",
}
THRESHOLDS = {
    "max-grad-norm": "Of the total L2 norm of all gradients.",
    "min-grad-norm": "Of the total L2 norm of all gradients.",
    "max-loss": "Of the loss of every step.",
    "gradient-growth": "GS401: growth of the gradient's norm over the whole depth or time (1e4: "
    "healthy models stay within 100).",
    "gradient-fade": "GS402: what is left of the gradient's norm over the whole depth or time "
    "(1e-5: a deep ReLU network in the default initialisation keeps 1e-3).",
    "gradient-rms": "GS402: size of a gradient element (1e-8: the eps of Adam).",
    "gradient-share": "GS402: size of a gradient element relative to the largest weight's (1e-6: "
    "the resolution of float32 is 1.2e-7).",
    "zero-passes": "GS403: backward passes after which a factor of zero has had the time to move "
    "(3).",
    "loss-growth": "GS404: growth of losses in a row before they overflow (100: noise between "
    "batches stays below).",
}
TENSOR = {
    "values": "Numbers, nested as the tensor is.",
    "shape": "The size of each dimension; [] is a single number.",
    "range": "Values are uniform between these two, and never outside them. Whole numbers: both "
    "included.",
    "dtype": "A torch dtype (float32).",
    "seed": "Values are the same at each run in any case; this chooses others.",
    "requires_grad": "Whether a gradient is wanted (of floating tensors: true).",
    "nonempty": "The tensor is never empty: check --stress tries no empty one.",
}


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


def _described(readers: Mapping[str, Reader], words: Mapping[str, str]) -> Schema:
    return {key: {**_TAKEN[one], "description": words[key]} for key, one in readers.items()}


_TAKEN[keys.thresholds] = _object(_described(keys.THRESHOLD_READERS, THRESHOLDS))


def schema() -> Schema:
    """That of a whole file."""
    top = _described(keys.READERS, KEYS)
    entry: Schema = {key: {"$ref": f"#/properties/{key}"} for key in keys.TARGET_READERS}
    entry |= _described({"name": scalars.text}, KEYS)
    items = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/target"}]}
    top["targets"] = {"type": "array", "description": KEYS["targets"], "items": items}
    plain = {"type": ["string", "number", "boolean", "null", "array"]}
    tensor = _object(_described(inputs.TENSOR_KEYS, TENSOR))
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
