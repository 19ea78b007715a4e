"""Whose a file is: the user's is what was asked to run, wherever it lies."""

import os
from pathlib import Path

import pytest
from conftest import ROOT

INPUT = "x=torch.zeros(2, requires_grad=True)"
LIBRARY = """\
def rooted(x):
    return x.sqrt().sum()
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder into which a package was installed, called as no such folder is by Python."""
    place = tmp_path / "elsewhere"
    (place / "rooting").mkdir(parents=True)
    (place / "rooting-1.0.dist-info").mkdir()
    (place / "rooting/__init__.py").touch()
    (place / "rooting/losses.py").write_text(LIBRARY)
    (place / "rooting/train.py").write_text(
        "import torch\nfrom rooting.losses import rooted\n"
        "x = torch.zeros(2, requires_grad=True)\nrooted(x).backward()\n"
    )
    return place


@pytest.mark.parametrize(
    "target", [("rooting.train",), ("rooting.losses:rooted", "--input", INPUT)]
)
@pytest.mark.long
def test_what_was_asked_to_run_is_the_users_wherever_it_is_installed(gradscope, installed, target):
    run = gradscope("trace", *target, PYTHONPATH=os.pathsep.join([str(ROOT), str(installed)]))

    assert " --> elsewhere/rooting/losses.py:2:12, in rooted" in run.stdout, run.stderr
    assert "= verified" in run.stdout


def test_an_installed_package_is_not_the_users_whatever_its_folder_is_called(
    gradscope, installed, tmp_path
):
    (tmp_path / "mine.py").write_text((installed / "rooting/train.py").read_text())
    run = gradscope("trace", "mine.py", PYTHONPATH=os.pathsep.join([str(ROOT), str(installed)]))

    assert " --> mine.py:4:1\n" in run.stdout, run.stderr
    assert "inside: elsewhere/rooting/losses.py:2:12" in run.stdout
