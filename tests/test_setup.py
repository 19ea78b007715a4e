"""The scripts of a fresh clone, with a Python that only pretends to install."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Stands in for python3: makes what `-m venv` makes, and a pip that installs a talking gradscope.
PYTHON = r"""#!/usr/bin/env bash
case "$1 $2" in
    "-c "*) exit "${PRETEND_TOO_OLD:-0}" ;;
    "-m venv")
        [[ "$3" == --clear ]] && rm -rf "$4"
        mkdir -p "$4/bin" && cp "$0" "$4/bin/python"
        ;;
    "-m pip")
        [[ -z "${PRETEND_NO_NETWORK:-}" ]] || { echo "no such package" >&2; exit 1; }
        printf '%s\n' "$@" >"$(dirname "$0")/pip-arguments"
        printf '#!/usr/bin/env bash\nprintf "%%s|" "$PWD" "$@"\nexit 7\n' \
            >"$(dirname "$0")/gradscope"
        chmod +x "$(dirname "$0")/gradscope"
        ;;
    *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout whose path has a space in it, without an environment."""
    clone = tmp_path / "a clone"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    shutil.copy(ROOT / "pyproject.toml", clone)
    python = clone / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return clone


def run(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`scripts/run` from the folder above the clone."""
    return subprocess.run(
        [clone / "scripts/run", *arguments],
        cwd=clone.parent,
        env=os.environ | {"PYTHON": str(clone / "python")} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_first_run_sets_up_and_then_runs_where_the_user_stands(clone):
    first = run(clone, "trace", "my loss.py", "--", "*")

    assert first.stdout == f"{clone.parent}|trace|my loss.py|--|*|"
    assert first.returncode == 7
    assert first.stderr.count("\n") == 1
    assert f"setting up {clone}/.venv" in first.stderr
    pip = (clone / ".venv/bin/pip-arguments").read_text().splitlines()
    assert f"{clone}[dev]" in pip
    assert pip[pip.index("--constraint") + 1] == f"{clone}/scripts/constraints.txt"


def test_without_a_gpu_the_build_for_it_is_taken_where_there_is_one(clone):
    run(clone)

    pip = (clone / ".venv/bin/pip-arguments").read_text().splitlines()
    has_gpu = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))
    assert ("torch==2.13.0+cpu" in pip) is (sys.platform == "linux" and not has_gpu)


def test_the_second_run_only_runs(clone):
    run(clone)
    second = run(clone, "norms", PRETEND_NO_NETWORK="1")

    assert (second.stdout, second.stderr) == (f"{clone.parent}|norms|", "")


@pytest.mark.parametrize("changed", ["pyproject.toml", "scripts/constraints.txt"])
def test_a_changed_list_of_packages_sets_up_again(clone, changed):
    run(clone)
    kept = clone / ".venv/kept"
    kept.touch()
    with (clone / changed).open("a") as file:
        file.write("\n# another package\n")

    assert "setting up" in run(clone).stderr
    assert run(clone).stderr == ""
    assert kept.exists()


def test_a_moved_checkout_starts_afresh(clone):
    run(clone)
    (clone / ".venv/stale").touch()
    moved = clone.rename(clone.parent / "moved")

    assert f"setting up {moved}/.venv" in run(moved).stderr
    assert not (moved / ".venv/stale").exists()


def test_a_failed_installation_says_why_and_is_tried_again(clone):
    failed = run(clone, PRETEND_NO_NETWORK="1")

    assert failed.returncode == 2
    assert failed.stderr.splitlines()[1:] == [
        "no such package",
        f"setting up failed; the whole log is {clone}/.venv/gradscope-setup.log",
    ]
    assert run(clone).returncode == 7


def test_an_old_python_is_refused(clone):
    old = run(clone, PRETEND_TOO_OLD="1")

    assert old.returncode == 2
    assert old.stderr.startswith("gradscope needs Python 3.11 or later")
    assert not (clone / ".venv").exists()


def test_ci_runs_the_tests_and_nothing_else():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    commands = [line for line in lines if not line.startswith("#")]

    assert lines[0] == "#!/usr/bin/env bash"
    assert commands == [
        "set -e",
        'tests="$(dirname "${BASH_SOURCE[0]}")/../scripts/test"',
        '"$tests"',
        'exec "$tests" -m "long and not slow"',
    ]


def test_users_install_four_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    names = {requirement.partition(">=")[0] for requirement in project["dependencies"]}
    assert names == {"torch", "typer", "rich", "pyyaml"}


def test_torch_is_pinned():
    constraints = (ROOT / "scripts/constraints.txt").read_text().splitlines()

    assert "torch==2.13.0" in constraints
