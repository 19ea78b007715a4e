"""The scorer itself: a wrong answer must not count as right."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from scoring.anomaly import blamed
from scoring.cases import load, with_twin, without_markers
from scoring.judge import judge
from scoring.patches import ADVICE, EQUAL, NONE, VERIFIED, compared, difference
from scoring.tools import Outcome, anomaly_mode

PROGRAM = """import torch

x = torch.zeros(2, requires_grad=True)
y = x.sqrt()  # <- culprit
y.sum().backward()
"""
TRUTH = {
    "broken": {
        "op": "sqrt",
        "cause": "singular-derivative",
        "fix": "epsilon",
        "also": {"fix": ["clamp-domain"]},
        "backward_node": "SqrtBackward0",
    },
    "fine": {"op": None, "cause": "healthy", "fix": "none", "backward_node": None},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "truth.yaml").write_text(yaml.safe_dump(TRUTH))
    for name in ("broken", "broken_fixed", "fine"):
        (tmp_path / f"{name}.py").write_text(PROGRAM)
    return tmp_path


def finding(**changes: Any) -> dict[str, Any]:
    right = {
        "rule": "GS102",
        "name": "singular-derivative",
        "severity": "error",
        "op": "sqrt",
        "message": "slope",
        "location": {"file": "broken.py", "line": 4},
        "related": [],
        "fixes": [{"kind": "clamp-domain", "verified": True, "patch": "---", "verdict": ""}],
    }
    return right | changes


def judged(folder: Path, name: str, **answers: list[dict[str, Any]]):
    """The row of one case, with the findings given for each program (none without)."""

    def run(tool: str, program: Path) -> Outcome:
        found = answers.get(program.stem, [])
        return Outcome({"findings": found} if tool == "gradscope" else {"node": None, "line": None})

    (case,) = load(folder, [name])
    return judge(case, run)


def test_a_right_answer_has_every_mark(folder):
    row = judged(folder, "broken", broken=[finding()])

    assert set(row.ours.values()) == {True}
    assert (row.alarms, row.misses) == ((), ())
    assert set(row.theirs.values()) == {False}


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("detected", {"severity": "warning"}),
        ("line", {"location": {"file": "broken.py", "line": 5}}),
        ("line", {"location": {"file": "other.py", "line": 4}}),
        ("line", {"location": None}),
        ("op", {"op": "mul"}),
        ("cause", {"name": "overflow"}),
        ("offered", {"fixes": []}),
        ("fix", {"fixes": [{"kind": "dtype", "verified": True, "patch": "-"}]}),
        ("verified", {"fixes": [{"kind": "epsilon", "verified": None, "patch": "-"}]}),
        ("patched", {"fixes": [{"kind": "epsilon", "verified": True, "patch": None}]}),
    ],
)
def test_a_wrong_answer_loses_its_mark(folder, column, wrong):
    row = judged(folder, "broken", broken=[finding(**wrong)])

    assert row.ours[column] is False
    assert any(miss.startswith(f"{column}:") for miss in row.misses)


def test_only_the_first_finding_counts(folder):
    row = judged(folder, "broken", broken=[finding(op="mul"), finding()])

    assert row.misses == ("op: mul, not sqrt",)


def test_the_call_that_led_there_counts_as_the_line(folder):
    inside = finding(location={"file": "functional.py", "line": 4})
    place = {"file": "broken.py", "line": 4}

    called = judged(folder, "broken", broken=[inside | {"related": [related("call", place)]}])
    masked = judged(folder, "broken", broken=[inside | {"related": [related("mask", place)]}])

    assert called.ours["line"] is True
    assert masked.ours["line"] is False


def related(role: str, place: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "location": place, "message": ""}


def test_an_error_on_a_sound_program_is_a_false_alarm(folder):
    alarm = "broken_fixed.py: GS102 slope"

    assert judged(folder, "broken", broken_fixed=[finding()]).alarms == (alarm,)
    assert judged(folder, "broken", broken_fixed=[finding(severity="warning")]).alarms == ()
    assert judged(folder, "fine", fine=[finding()]).alarms == ("fine.py: GS102 slope",)


def test_silence_is_a_miss(folder):
    row = judged(folder, "broken")

    assert set(row.ours.values()) == {False}
    assert row.misses == ("no finding",)


def test_the_marker_is_taken_away_and_nothing_moves():
    assert without_markers(PROGRAM) == PROGRAM.replace("  # <- culprit", "")


def test_what_anomaly_mode_blames_is_its_innermost_line_in_the_program():
    text = (
        "Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n"
        '  File "loop.py", line 9, in <module>\n    loss = step()\n'
        '  File "loop.py", line 4, in step\n    return norm(x)\n'
        '  File "torch/functional.py", line 77, in norm\n    return x.sqrt()\n'
    )

    assert blamed("loop.py", ["something else", text]) == {"node": "SqrtBackward0", "line": 4}
    assert blamed("loop.py", ["something else"]) == {"node": None, "line": None}


def values(loss: float | None, *gradient: float) -> Outcome:
    """What a program has at the step in question."""
    x = {"shape": [len(gradient)], "norm": max(gradient, default=0.0), "bad": 0, "sample": gradient}
    return Outcome({"ended": "raised E", "loss": loss, "gradients": {"x": x}})


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (values(2.0, 1.0, 3.0), ""),
        (values(2.00001, 1.00001, 3.0), ""),
        (values(2.1, 1.0, 3.0), "loss by 4.8e-02"),
        (values(2.0, 0.0, 3.0), "gradient of x by 3.3e-01"),
        (values(float("nan"), 1.0, 3.0), "loss by inf"),
        (values(None), "the patched program: raised E"),
        (values(2.0, 1.0), "the leaves are others"),
    ],
)
def test_a_patch_equals_its_twin_in_loss_and_every_gradient(ours, said):
    assert difference(ours, values(2.0, 1.0, 3.0)) == said


PATCH = """--- a/broken.py
+++ b/broken.py
@@ -1,5 +1,5 @@
 import torch
 
 x = torch.zeros(2, requires_grad=True)
-y = x.sqrt()
+y = (x + 1).sqrt()
 y.sum().backward()
"""


@pytest.mark.parametrize(
    ("fixes", "outcome"),
    [
        ([], NONE),
        ([{"title": "", "verdict": "", "patch": None, "verified": None}], ADVICE),
        ([{"title": "", "verdict": "", "patch": PATCH, "verified": True}], VERIFIED),
    ],
)
def test_the_leading_fix_is_put_beside_the_twin(fixes, outcome, folder, monkeypatch):
    ran = []

    def told(program: Path, step: int, limit: float) -> Outcome:
        ran.append(program.read_text())
        return values(2.0 + len(ran), 1.0)

    found = {"findings": [finding(step=0, fixes=fixes)], "symptoms": [{"step": 1}]}
    monkeypatch.setattr("scoring.patches.gradscope", lambda program, limit: Outcome(found))
    monkeypatch.setattr("scoring.patches.values", told)
    (case,) = with_twin(folder, ["broken"])
    row = compared(case, 60)

    assert row.outcome == outcome
    assert ["(x + 1).sqrt()" in text for text in ran] == [True, False][: len(ran)]
    assert row.step == (1 if ran else 0)


@pytest.mark.slow
def test_a_patched_program_is_run_beside_its_twin_for_real(folder):
    (folder / "broken_fixed.py").write_text(
        PROGRAM.replace("x.sqrt()", "torch.where(x > 0, x, 1.0).sqrt() * (x > 0)")
    )
    row = compared(with_twin(folder, [])[0], 60)

    assert row.twins == 0.0 and row.outcome in (EQUAL, VERIFIED)


@pytest.mark.slow
def test_anomaly_mode_is_run_for_real(folder):
    assert anomaly_mode(folder / "broken.py", 60).answer == {"node": None, "line": None}
    swallowed = "try:\n    (y * 0).sum().backward()\nexcept RuntimeError:\n    pass"
    (folder / "nan.py").write_text(PROGRAM.replace("y.sum().backward()", swallowed))

    assert anomaly_mode(folder / "nan.py", 60).answer == {"node": "SqrtBackward0", "line": 4}
