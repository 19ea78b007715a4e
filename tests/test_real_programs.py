"""Training scripts on real packages: traced clean, and with one planted bug found at its line.

The scripts are in tests/programs/real. The line of the bug ends in `# bug: OLD => NEW`; the broken
program is the one with NEW. The packages are the extra `programs`.
"""

import re
from pathlib import Path

import pytest
from apart import in_fork, run_plainly, traced

from gradscope.facts import Severity

REAL = Path(__file__).parent / "programs" / "real"
BUG = re.compile(r"  # bug: (.+) => (.+)$", re.MULTILINE)
PACKAGES = (
    "accelerate",
    "diffusers",
    "lightning",
    "peft",
    "torch_geometric",
    "torchmetrics",
    "transformers",
)

pytestmark = pytest.mark.slow
scripts = pytest.mark.parametrize("script", sorted(REAL.glob("*.py")), ids=lambda path: path.stem)


@pytest.fixture
def text(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    source = script.read_text(encoding="utf-8")
    for package in PACKAGES:
        if re.search(rf"^(from|import) {package}", source, re.MULTILINE):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    return source


@scripts
def test_clean(script, text, capfd):
    path = Path(script.name)
    path.write_text(BUG.sub("", text), encoding="utf-8")

    status = in_fork(lambda: run_plainly(path))
    bare = capfd.readouterr()
    report = traced(path)
    seen = capfd.readouterr()

    assert status == 0, bare.err
    assert seen.out == bare.out
    assert report.verdict == "healthy"
    loud = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    assert [f"{finding.rule}: {finding.message}" for finding in loud] == []
    assert report.trace.notes == ()
    assert len(report.trace.steps) >= 2


@scripts
def test_planted_bug(script, text):
    path = Path(script.name)
    bug = BUG.search(text)
    line = text[: bug.start()].count("\n") + 1
    broken = BUG.sub("", text).splitlines(keepends=True)
    assert bug[1] in broken[line - 1]
    broken[line - 1] = broken[line - 1].replace(bug[1], bug[2])
    path.write_text("".join(broken), encoding="utf-8")

    report = traced(path)

    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    assert report.verdict == "unhealthy"
    assert (errors[0].location.file, errors[0].location.line) == (script.name, line)
