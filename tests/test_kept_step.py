"""A step that is saved: the same findings at the same places, without the program, and nothing in
the folder that is run."""

import json
import time
from pathlib import Path

import pytest
import torch
from corpus import programs

from gradscope import pipeline
from gradscope.config import Config
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Finding, Report, Severity
from gradscope.programs import parse_target
from gradscope.report.status import Stages

TRAINING = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        h = torch.nn.functional.dropout(self.hidden(x).relu(), 0.5)
        return self.out(h).square()


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(20):
    x = torch.randn(6, 4)
    if step == 13:
        x = x * 0
        net.out.bias.data.zero_()
        net.hidden.bias.data.zero_()
    optimizer.zero_grad()
    loss = net(x).sqrt().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
"""
NAMES = (
    "checkpointed_block_log",
    "running_variance_is_nan",
    "soft_labels_times_masked_logprob",
)
CASES = [one for one in programs("cases") if one.name in NAMES]
QUIET = Config().overridden(verify=False)


def errors(report: Report) -> list[Finding]:
    return [one for one in report.findings if one.severity is Severity.ERROR]


def places(report: Report) -> list[object]:
    found = errors(report)
    return [
        (one.rule, one.location and (one.location.line, one.location.col), one.op, one.why)
        for one in found
    ]


def kept(source: str, folder: Path) -> tuple[Report, Report]:
    """What was found in a program, and in the step of it that was saved, without the program."""
    program, step = folder / "train.py", folder / "step"
    program.write_text(source)
    first = pipeline.trace(parse_target(str(program)), QUIET, silent=True, keep_step_in=step)
    program.unlink()
    return first, pipeline.replay(step, QUIET, Stages(), time.monotonic())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.long
def test_a_saved_step_has_the_findings_of_the_program(case, here):
    first, again = kept(case.source, here)  # type: ignore[attr-defined]

    assert places(again) == places(first) != []
    assert [fix.title for one in errors(again) for fix in one.fixes] == [
        fix.title for one in errors(first) for fix in one.fixes
    ]


def test_a_late_step_is_saved_with_optimizer_and_random_state(gradscope, tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)

    traced = gradscope(
        "trace", "train.py", "--save-step", "step", "--no-verify", "--format", "json"
    )
    (tmp_path / "train.py").unlink()
    replayed = gradscope("replay", "step", "--format", "json")

    (first,), (again,) = (json.loads(run.stdout)["findings"] for run in (traced, replayed))
    assert replayed.returncode == ExitCode.FINDINGS, replayed.stderr
    assert (first["rule"], first["step"]) == ("GS102", 13)
    for name in ("rule", "op", "why", "evidence"):
        assert again[name] == first[name], name
    assert again["location"] == first["location"] | {"file": "step/sources/train.py"}
    patch, tried = again["fixes"][0]["patch"], first["fixes"][0]["patch"]
    assert patch.replace("step/sources/", "") == tried
    assert again["fixes"][0]["verified"] is None
    assert again["fixes"][0]["verdict"].endswith("only a step was saved, and not its program")


def test_what_is_read_is_data_and_names_functions_of_torch_alone(tmp_path):
    kept(TRAINING, tmp_path)
    step = tmp_path / "step"
    document = json.loads((step / "step.json").read_text())

    held = torch.load(step / "tensors.pt", weights_only=True)
    document["calls"][0]["f"] = "os.system"
    (step / "step.json").write_text(json.dumps(document))

    assert all(isinstance(one, torch.Tensor) for one in held.values())
    with pytest.raises(GradscopeError, match="which it may not call"):
        pipeline.replay(step, QUIET, Stages(), 0.0)


def test_what_is_no_step_is_told_in_a_line(tmp_path, gradscope):
    source = "import torch\nx = torch.zeros(2, requires_grad=True)\nx.sqrt().sum().backward()\n"
    kept(source, tmp_path)
    calls, tensors = tmp_path / "step" / "step.json", tmp_path / "step" / "tensors.pt"

    tensors.write_bytes(b"no")
    done = gradscope("replay", "step")

    assert done.returncode == ExitCode.UNUSABLE
    assert "tensors.pt is not read" in done.stderr and "Traceback" not in done.stderr
    for text, told in (("{", "does not parse"), ('{"schema": "x/9"}', "its schema is x/9")):
        calls.write_text(text)
        with pytest.raises(GradscopeError, match=told):
            pipeline.replay(tmp_path / "step", QUIET, Stages(), 0.0)


def test_a_folder_with_something_else_in_it_is_left_alone(gradscope, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")

    done = gradscope("trace", "train.py", "--save-step", "mine")

    assert done.returncode == ExitCode.UNUSABLE
    assert "holds other things than a step" in done.stderr
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_healthy_program_leaves_no_folder(tmp_path):
    program = tmp_path / "fine.py"
    program.write_text("import torch\ntorch.ones(2, requires_grad=True).sum().backward()\n")

    report = pipeline.trace(
        parse_target(str(program)), QUIET, silent=True, keep_step_in=tmp_path / "step"
    )

    assert "no step was saved: none has failed" in report.remarks
    assert {one.name for one in tmp_path.iterdir()} == {"fine.py"}


def test_what_the_step_alone_does_not_show_is_told(tmp_path):
    source = """\
import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return -grad


x = torch.ones(3, requires_grad=True)
Double.apply(x).sum().backward()
"""

    first, again = kept(source, tmp_path)

    (wrong,) = errors(first)
    assert any(one.what == "what lies behind `Double.apply`" for one in again.not_searched)
    assert [one for one in again.remarks if one.startswith(f"{wrong.rule} {wrong.name} at ")]
    (told,) = errors(again)
    assert (told.rule, told.message) == (wrong.rule, wrong.message)
    assert Path(told.location.file).parent.name == "sources"
    assert told.fixes[0].patch is not None
