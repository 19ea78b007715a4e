"""What is published runs by itself: built, put in a place of its own, started elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """\
import torch

x = torch.zeros(3, requires_grad=True)
x.sqrt().sum().backward()
"""

pytestmark = pytest.mark.slow


def python(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, **env}
    )


def built(source: Path, folder: Path) -> Path:
    run = python("-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source))
    assert run.returncode == 0, run.stderr
    return next(folder.glob("gradscope-*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_runs_without_the_repository(wheel: Path, tmp_path: Path):
    place, work = tmp_path / "place", tmp_path / "work"
    work.mkdir()
    run = python("-m", "pip", "install", "-q", "--no-deps", "--target", str(place), str(wheel))
    assert run.returncode == 0, run.stderr
    (work / "my_loss.py").write_text(PROGRAM)

    def gradscope(*words: str) -> subprocess.CompletedProcess[str]:
        # -P: the folder of the test run must not serve as the package's home
        return python("-P", "-m", "gradscope", *words, PYTHONPATH=str(place))

    where = python("-P", "-c", "import gradscope; print(gradscope.__file__)", PYTHONPATH=str(place))
    assert Path(where.stdout.strip()).is_relative_to(place)
    traced = gradscope("trace", str(work / "my_loss.py"))
    assert traced.returncode == 1, traced.stderr
    assert "GS102" in traced.stdout and "verified" in traced.stdout
    assert "masked-branch" in gradscope("explain", "GS101").stdout
    page = work / "norms.html"
    assert gradscope("norms", "--html", str(page)).returncode == 0
    assert "<html" in page.read_text()
    assert gradscope("trace", str(work / "my_loss.py"), "--format", "json").stdout.startswith("{")


def test_a_wheel_is_typed_and_holds_the_package_alone(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert "gradscope/py.typed" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"gradscope"}
    assert not [name for name in names if "__pycache__" in name]


def test_an_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path):
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
