"""The pytest plugin, in a pytest of its own as a user would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import paths

TESTS = """
import pytest
import torch


def loss(x):
    return x.sqrt().sum()


def backward(*values):
    loss(torch.tensor(values, requires_grad=True)).backward()


@pytest.mark.gradscope
def test_marked_and_bad():
    backward(0.0, 1.0)


@pytest.mark.gradscope
def test_marked_and_good():
    backward(1.0, 2.0)


def test_nobody_asked():
    backward(0.0, 1.0)


@pytest.mark.gradscope(enabled=False)
def test_switched_off():
    backward(0.0, 1.0)


@pytest.mark.gradscope(ignore="singular-derivative")
def test_ignored():
    backward(0.0, 1.0)


def test_asked_by_fixture(gradscope):
    backward(0.0, 1.0)
    assert [finding.rule for finding in gradscope.findings()] == ["GS102"]
    gradscope.accept("GS102")


def test_fixture_and_bad(gradscope):
    backward(0.0, 1.0)


@pytest.mark.gradscope
def test_fails_by_itself():
    backward(0.0, 1.0)
    assert False, "its own words"


@pytest.mark.gradscope
def test_skips():
    backward(0.0, 1.0)
    pytest.skip("not here")
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": paths(), "COLUMNS": "200"}
    plugin = "gradscope.integrations.pytest_plugin"
    loaded = "gradscope = " in "".join(_entry_points())
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", *(() if loaded else ("-p", plugin)), *words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _entry_points() -> list[str]:
    from importlib.metadata import entry_points

    return [f"{one.name} = {one.value}" for one in entry_points(group="pytest11")]


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    words = (line.split() for line in done.stdout.splitlines())
    return {
        parts[1].partition("::test_")[2]: parts[0]
        for parts in words
        if len(parts) > 1 and parts[0] in ("PASSED", "FAILED", "ERROR") and "::" in parts[1]
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


@pytest.mark.slow
def test_marks_and_fixtures(folder):
    done = run(folder)

    assert outcomes(done) == {
        "marked_and_bad": "FAILED",
        "marked_and_good": "PASSED",
        "nobody_asked": "PASSED",
        "switched_off": "PASSED",
        "ignored": "PASSED",
        "asked_by_fixture": "PASSED",
        "fixture_and_bad": "FAILED",
        "fails_by_itself": "FAILED",
    }
    assert "error[GS102] singular-derivative" in done.stdout
    assert "--> test_it.py:7:12, in loss" in done.stdout
    assert "its own words" in done.stdout


@pytest.mark.slow
def test_every_test_under_xdist(folder):
    pytest.importorskip("xdist")

    done = run(folder, "--gradscope", "-n", "2")

    failed = {name for name, outcome in outcomes(done).items() if outcome == "FAILED"}
    assert failed == {"marked_and_bad", "nobody_asked", "fixture_and_bad", "fails_by_itself"}


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("ignore='masked-brunch'", "gradscope: unknown rule masked-brunch"),
        ("fail_on='never'", "gradscope: 'never' is not a valid Severity"),
        ("only='GS102'", "the mark gradscope has no only: it has select, ignore, fail_on, enabled"),
    ],
)
@pytest.mark.long
def test_a_mistake_in_a_mark_is_one_line(tmp_path, mark, says):
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n@pytest.mark.gradscope({mark})\ndef test_it(): pass\n"
    )

    done = run(tmp_path)

    assert says in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.long
def test_the_configuration_speaks(folder):
    (folder / "gradscope.yaml").write_text("ignore: [GS102]\n")

    assert outcomes(run(folder))["marked_and_bad"] == "PASSED"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")
@pytest.mark.long
def test_a_fix_is_tried_by_running_the_test_again(folder):
    done = run(folder, "-k", "marked_and_bad")

    assert "= verified: " in done.stdout, done.stdout
    assert "1 failed" in done.stdout
