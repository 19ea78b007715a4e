"""Runs one program up to a backward pass, and writes down its loss and gradients there.

    python values.py PROGRAM STEP ANSWER

The random state at the start is the same for every program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gradscope.facts import Trace
from gradscope.programs import RunOptions, parse_target, run


def values(trace: Trace, step: int) -> dict[str, object]:
    """`loss` of the step and `gradients` of every leaf by name: shape, norm, bad elements, sample.
    `loss` is None where the program did not come as far; `ended` says how it ended."""
    last = trace.steps[-1] if len(trace.steps) == step + 1 else None
    return {
        "ended": f"{trace.ending.kind} {trace.ending.detail}".strip(),
        "loss": last.loss if last else None,
        "gradients": {
            one.name: {"shape": one.shape, "norm": one.norm, "bad": one.bad, "sample": one.sample}
            for one in trace.gradients
            if last
        },
    }


def main() -> None:
    program, step, answer = sys.argv[1:]
    passes = int(step) + 1
    options = RunOptions(steps=passes, passes=passes, keep_going=True, custom_backward=False)
    trace = run(parse_target(program), options, silent=True)
    Path(answer).write_text(json.dumps(values(trace, int(step))))


if __name__ == "__main__":
    main()
