"""`gradscope check` where nothing is configured, and the configuration that it proposes."""

from pathlib import Path

import pytest

from gradscope.check.proposal import propose

SCRIPT = """\
import torch
from engine.loop import Trainer

if __name__ == "__main__":
    Trainer().fit(torch.ones(3, requires_grad=True))
"""
LOOP = """\
class Trainer:
    def fit(self, x):
        self.step((x * x).sum())

    def step(self, loss):
        loss.backward()
"""
BAD = """\
import torch

x = torch.zeros(3, requires_grad=True)
torch.autograd.grad(x.sqrt().sum(), x)
"""
LOSSES = """\
import torch


def focal(logits, labels, gamma=2.0):
    return logits.sum()
"""
SMOKE = """\
import torch


def smoke(steps=3):
    (torch.ones(2, requires_grad=True) * steps).sum().backward()


def train(model, *, loader):
    for batch in loader:
        model(batch).backward()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "bad one.py": BAD,
        "train.py": SCRIPT,
        "engine/loop.py": LOOP,
        "losses.py": LOSSES,
        "smoke.py": SMOKE,
        "broken.py": "def\n",
        "tests/test_it.py": BAD,
        ".hidden/x.py": BAD,
        "env/lib/x.py": BAD,
        "step/sources/x.py": BAD,
        "plot.py": "print('no gradient here')\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "step/step.json").touch()
    return tmp_path


def test_without_a_configuration_it_is_the_callers_mistake(gradscope):
    done = gradscope("check")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "gradscope: error: no gradscope.yaml says what to check",
        "help: gradscope check --init writes one for the programs of this folder; or name a target:"
        " gradscope check my_loss.py",
    ]


def test_what_runs_backward_is_proposed_and_the_rest_is_told(project):
    found = propose(project)

    assert found.targets == ("bad one.py", "train.py", "smoke.py:smoke")
    assert found.left_out == (
        "broken.py cannot be read: invalid syntax",
        "losses.py calls no backward(): a function of it that returns a loss is named "
        "losses.py:FUNCTION",
        "smoke.py:train takes model, loader: name it with its inputs",
    )


@pytest.mark.long
def test_what_it_writes_is_checked(gradscope, project):
    wrote = gradscope("check", "--init")
    written = (project / "gradscope.yaml").read_text()
    again = gradscope("check", "--init")
    checked = gradscope("check", "--no-verify")

    assert wrote.returncode == 0, wrote.stderr
    assert wrote.stdout.splitlines()[:4] == [
        "wrote gradscope.yaml with 3 targets:",
        "  bad one.py",
        "  train.py",
        "  smoke.py:smoke",
    ]
    assert again.returncode == 2
    assert "gradscope.yaml is there already, and is not overwritten" in again.stderr
    assert (project / "gradscope.yaml").read_text() == written
    assert checked.returncode == 1, checked.stderr
    assert "3 targets: 2 healthy, 1 unhealthy" in checked.stdout


def test_where_nothing_runs_backward_nothing_is_written(gradscope, tmp_path):
    (tmp_path / "losses.py").write_text(LOSSES)

    done = gradscope("check", "--init")

    assert done.returncode == 2
    assert "left out: losses.py calls no backward()" in done.stderr
    assert not (tmp_path / "gradscope.yaml").exists()


def test_a_program_that_imports_from_its_own_package_is_run_as_a_module(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    for name in ("train.py", "__main__.py"):
        (package / name).write_text(SCRIPT.replace("from engine.loop", "from .loop"))
    (package / "loop.py").write_text(LOOP)
    (package / "__init__.py").touch()

    assert propose(tmp_path).targets == ("package", "package.train")
