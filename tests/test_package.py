"""What is published runs by itself: built, put in a place of its own, started elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gradscope.examples import EXAMPLES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gradscope"
Run = subprocess.CompletedProcess[str]
PROGRAM = """\
import torch

x = torch.zeros(3, requires_grad=True)
x.sqrt().sum().backward()
"""


def python(*words: str, **env: str) -> Run:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=os.environ | env
    )


def built(source: Path, folder: Path) -> Path:
    run = python("-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source))
    assert run.returncode == 0, run.stderr
    return next(folder.glob("gradscope_torch-*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def test_the_examples_are_the_users_where_the_package_is_installed(tmp_path):
    """What an installer leaves behind, without the installer."""
    shutil.copytree(PACKAGE, tmp_path / "gradscope", ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "gradscope_torch-0.1.dist-info").mkdir()

    # -P: the folder of the test run must not serve as the package's home
    run = python("-P", "-m", "gradscope", "trace", "gamma_mask", PYTHONPATH=str(tmp_path))

    assert f"--> {tmp_path}/gradscope/examples/gamma_mask.py:12:42" in run.stdout, run.stderr
    assert "= verified: bad elements of `x` 1 -> 0" in run.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """The command of a fresh environment, which borrows torch and the rest from this one's."""
    home, work = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("work")
    venv.create(home, symlinks=True)
    place = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    (place / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    run = python("-m", "pip", "install", "-q", "--no-deps", "--target", str(place), str(wheel))
    assert run.returncode == 0, run.stderr
    (work / "my_loss.py").write_text(PROGRAM)

    def gradscope(*words: str) -> Run:
        return subprocess.run(
            [home / "bin/python", "-m", "gradscope", *words],
            cwd=work,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
        )

    where = subprocess.run(
        [home / "bin/python", "-c", "import gradscope; print(gradscope.__file__)"],
        cwd=work,
        capture_output=True,
        text=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(place)
    return gradscope


@pytest.mark.slow
def test_installed_examples_have_their_place_and_their_fix(installed):
    run = installed("check", *EXAMPLES, "--format", "json")
    here = python("-m", "gradscope", "check", *EXAMPLES, "--format", "json")

    assert told(run) == told(here), run.stderr


def told(run: Run) -> list[tuple[object, ...]]:
    """The findings without the folders in which their files lie."""
    return [
        (
            finding["target"],
            finding["rule"],
            finding["location"]
            and (Path(finding["location"]["file"]).name, finding["location"]["line"]),
            [(fix["kind"], fix["verified"]) for fix in finding["fixes"]],
        )
        for finding in json.loads(run.stdout)["findings"]
    ]


@pytest.mark.slow
def test_every_command_runs_installed(installed, tmp_path):
    traced = installed("trace", "my_loss.py")
    assert traced.returncode == 1, traced.stderr
    assert " --> my_loss.py:4:1" in traced.stdout and "= verified" in traced.stdout
    patch = installed("fix", "gamma_mask")
    assert patch.returncode == 0 and "+gamma = torch.where(x < 0.003" in patch.stdout
    assert (
        "is a built-in example and is not written to"
        in installed("fix", "gamma_mask", "--write").stderr
    )
    page = tmp_path / "norms.html"
    measured = installed("norms", "--max-norm", "100", "--html", str(page))
    assert measured.returncode == 0 and "17937.5879" in measured.stdout
    assert "<html" in page.read_text()
    checked = installed("check", "gamma_mask", "my_loss.py")
    assert checked.returncode == 1 and "2 targets: 2 unhealthy" in checked.stdout
    assert "masked-branch" in installed("explain", "GS101").stdout
    assert [line.split()[0] for line in installed("examples").stdout.splitlines()] == [*EXAMPLES]


@pytest.mark.slow
def test_a_wheel_is_typed_and_holds_the_package_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert "gradscope/py.typed" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {
        "gradscope",
        "gradscope_torch",
    }
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.slow
def test_an_sdist_builds_the_same_wheel(wheel, tmp_path):
    build = "from hatchling.builders.sdist import SdistBuilder as B; import sys; "
    build += "print(*B(sys.argv[1]).build(directory=sys.argv[2]))"
    pytest.importorskip("hatchling")
    run = python("-c", build, str(ROOT), str(tmp_path))
    assert run.returncode == 0, run.stderr
    with tarfile.open(run.stdout.strip()) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    again = built(next((tmp_path / "source").iterdir()), tmp_path / "again")

    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())
