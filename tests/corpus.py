"""The programs in tests/cases and tests/healthy, and what gradscope says of one.

A case's truth stands in comments at its top, one key a line: symptom, phase, op, cause, fix. The
line to blame ends in a marker. Where a second answer is as right it is given with its reason:
`# or fix: dtype (the products fit into float64)`, and `# or line: (...)` for a second marker.
Headers and markers are taken away before the program is run.
"""

import re
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scoring.cases import MARKER, without_markers

from gradscope.config import Config
from gradscope.diagnose import diagnose
from gradscope.facts import Ending, Finding, Phase, Report, Severity
from gradscope.facts import requests as ask
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.record import Observation
from gradscope.rules import RULES

HERE = Path(__file__).parent
KEYS = ("symptom", "phase", "op", "cause", "fix")
HEADER = re.compile(r"# (or )?([a-z]+): (.+)\n")
TOP = re.compile(rf"({HEADER.pattern})*")
OTHER = re.compile(r"(?P<answer>[\w-]*) ?\((?P<reason>.+)\)")


# What a rule asks for with a fix of a kind.
REQUESTS: Mapping[str, ask.Request] = {
    "masked-branch": ask.HarmlessOperand(hidden=True),
    "epsilon": ask.KeepOff(),
    "clamp-domain": ask.KeepOff(),
    "stable-op": ask.StableForm(),
    "dtype": ask.WiderDtype(),
    "guard-empty": ask.AllowEmpty(),
    "init": ask.FillMemory("empty"),
}


@dataclass(frozen=True, slots=True)
class Program:
    """One program. `right` holds the right answers for a key: one, or two where a header gives the
    other and its reason, which `reasons` holds. Both are empty for a healthy program."""

    name: str
    source: str  # as its author had it
    right: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, str]
    culprits: frozenset[int]  # 1-based lines of `source`


def clamps_pass_on_at_their_edge() -> bool:
    """Whether a clamp has a gradient at its very edge, which that of torch 2.14 has not."""
    x = torch.ones(1, requires_grad=True)
    x.clamp(-1, 1).sum().backward()
    return bool(x.grad)


def programs(folder: str | Path) -> list[Program]:
    return [_read(path) for path in sorted((HERE / folder).glob("*.py"))]


def diagnosed(program: Program, folder: Path, *, verify: bool = False) -> Report:
    """What gradscope says of the program, which is written to `folder` and run in a child."""
    path = folder / f"{program.name}.py"
    path.write_text(program.source, encoding="utf-8")
    return diagnosed_file(path, verify=verify)


def diagnosed_text(text: str, folder: Path, **options: Any) -> Report:
    """The same of a program that a test has written out."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return diagnosed_file(path, **options)


def diagnosed_file(path: Path, *, verify: bool = False, **options: Any) -> Report:
    """`options` are fields of the configuration. A busy machine is to try no fewer fixes."""
    import torch._dynamo  # noqa: F401  # else every child imports it for its first optimizer

    with warnings.catch_warnings():
        # The child inherits the filters, and a program's own warnings are not ours to judge.
        warnings.simplefilter("ignore")
        return trace(
            parse_target(str(path)), Config(**{"verify": verify, "verify_time": 600.0, **options})
        )


def findings(program: str) -> list[Finding]:
    """What is found in a program that runs in this process."""
    code = compile(program, "program.py", "exec")
    names: dict[str, object] = {"__name__": "__main__"}
    with Observation(full_from=None) as observed:
        exec(code, names)
    names.clear()  # an optimizer that is left over would be the next program's
    return list(diagnose(observed.trace("program.py", Ending("finished"))))


def loud(program: str) -> list[Finding]:
    """The same beside notes."""
    return [found for found in findings(program) if found.severity is not Severity.NOTE]


def patched(patch: str | None, folder: Path, name: str = "program.py") -> str:
    """What a patch makes of a program in a folder."""
    subprocess.run(["git", "apply"], input=patch or "", cwd=folder, text=True, check=True)
    return (folder / name).read_text(encoding="utf-8")


def finding_of(rule: str, **more: Any) -> Finding:
    """One of a rule that says nothing, but for what is given."""
    plain = {"step": 0, "phase": Phase.BACKWARD} | dict.fromkeys(("op", "message", "why"), "")
    known = {"name": RULES[rule].name, "severity": RULES[rule].severity} | plain
    return Finding(rule, **known | more)


def _read(path: Path) -> Program:
    text = path.read_text(encoding="utf-8")
    top = TOP.match(text)
    assert top is not None  # it may be empty
    bare = text[top.end() :]
    right, reasons = _answers(path.stem, top[0])
    return Program(
        name=path.stem,
        source=without_markers(bare),
        right=right,
        reasons=reasons,
        culprits=frozenset(n for n, line in enumerate(bare.splitlines(), 1) if MARKER in line),
    )


def _answers(name: str, top: str) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    answers: dict[str, tuple[str, ...]] = {}
    reasons: dict[str, str] = {}
    for is_other, key, said in HEADER.findall(top):
        if key not in (KEYS if not is_other else (*KEYS, "line")):
            raise ValueError(f"{name}: a header has no {key}")
        if not is_other:
            if key in answers or "," in said:
                raise ValueError(f"{name}: more than one {key}, without a reason")
            answers[key] = (said,)
            continue
        other = OTHER.fullmatch(said)
        if other is None or bool(other["answer"]) == (key == "line"):
            raise ValueError(f"{name}: the other {key} is given without its reason: {said}")
        if key in reasons:
            raise ValueError(f"{name}: more than two answers for {key}")
        reasons[key] = other["reason"]
        if other["answer"]:
            answers[key] = (*answers[key], other["answer"])
    return answers, reasons
