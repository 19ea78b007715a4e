"""Runs one program under anomaly mode and writes down what it blamed.

    python anomaly.py PROGRAM ANSWER

Started as a script, in a process that imports nothing else of ours.
"""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import sys
import warnings
from pathlib import Path

import torch


def blamed(program: str, texts: list[str]) -> dict[str, object]:
    """The node that anomaly mode names, and the innermost line of the program in its traceback.

    `node` is None where it was silent; `line` where it knew no line of the program.
    """
    for text in texts:
        if found := re.search(r"Error detected in (\w+)", text):
            lines = re.findall(r'File "([^"]+)", line (\d+)', text)
            ours = [int(line) for file, line in lines if Path(file).name == program]
            return {"node": found[1], "line": ours[-1] if ours else None}
    return {"node": None, "line": None}


def main() -> None:
    program, answer = sys.argv[1:]
    sys.argv = [program]
    sys.path[0] = ""
    torch.autograd.set_detect_anomaly(True)
    with warnings.catch_warnings(record=True) as caught, contextlib.suppress(BaseException):
        # What the program raises is not of interest: anomaly mode has warned before.
        warnings.simplefilter("always")
        runpy.run_path(program, run_name="__main__")
    texts = [str(warning.message) for warning in caught]
    Path(answer).write_text(json.dumps(blamed(program, texts)))


if __name__ == "__main__":
    main()
