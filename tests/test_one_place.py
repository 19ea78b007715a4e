"""A new rule, format, example or op fact is written in one place: no list elsewhere knows of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradscope.facts import requests
from gradscope.repair.write import propose

PACKAGE = Path(__file__).resolve().parent.parent / "gradscope"

RULE = '''
from collections.abc import Iterator

from gradscope.facts import Finding, Phase, Root, Severity, Trace
from gradscope.rules.rule import Rule


class LeftTurn(Rule):
    """
    ## What it does
    Finds every program.

    ## Why is this bad?
    It is not.

    ## Example
    ```python
    pass
    ```

    ## Fix safety
    There is no fix.
    """

    code = "GS199"
    name = "left-turn"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        error, forward = Severity.ERROR, Phase.FORWARD
        yield Finding(self.code, self.name, error, forward, 0, "mul", "turned left", "it did")
'''
FORMAT = """
NAME = "shout"


def render(report, options):
    return "".join(f"{finding.name}!\\n".upper() for finding in report.findings)


def render_all(summary, options):
    return ""
"""
EXAMPLE = '''"""A sum.

Healthy.
"""

# expects: healthy
import torch

torch.ones(3, requires_grad=True).sum().backward()
'''


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one more file of each kind."""
    place = tmp_path_factory.mktemp("grown")
    copy = shutil.copytree(PACKAGE, place / "gradscope", ignore=shutil.ignore_patterns("*.pyc"))
    (copy / "rules/causes/left_turn.py").write_text(RULE)
    (copy / "report/shout.py").write_text(FORMAT)
    (copy / "examples/a_sum.py").write_text(EXAMPLE)
    special = copy / "ops/special.py"
    fact = 'OpFact("cbrt")'
    special.write_text(special.read_text().replace("FACTS = (", f"FACTS = ({fact}, "))
    return place


def said(grown: Path, *words: str) -> str:
    run = subprocess.run(
        [sys.executable, "-P", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(grown)},
    )
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


@pytest.mark.long
def test_a_rule_speaks_and_a_format_writes_it_down(grown):
    traced = said(grown, "-m", "gradscope", "trace", "a_sum", "--format", "shout")

    assert traced == "LEFT-TURN!\n"


def test_the_lists_that_a_user_sees_have_them(grown):
    assert "left-turn" in said(grown, "-m", "gradscope", "explain")
    assert "a_sum" in said(grown, "-m", "gradscope", "examples")


@pytest.mark.long
def test_a_cause_that_is_taken_away_is_missed_by_nothing(tmp_path):
    copy = shutil.copytree(PACKAGE, tmp_path / "gradscope", ignore=shutil.ignore_patterns("*.pyc"))
    (copy / "rules/causes/masked_branch.py").unlink()

    assert "masked-branch" not in said(tmp_path, "-m", "gradscope", "explain")
    assert "masked-branch" not in said(tmp_path, "-m", "gradscope", "trace", "gamma_mask")


def test_an_op_fact_is_looked_up(grown):
    program = "from gradscope.ops import lookup; print(lookup('cbrt').name)"

    assert said(grown, "-c", program) == "cbrt\n"


def test_every_request_has_one_that_writes_it():
    def leaves(kind: type[requests.Request]) -> set[type[requests.Request]]:
        below = kind.__subclasses__()
        return set().union(*map(leaves, below)) if below else {kind}

    assert leaves(requests.Request) == {*propose.WRITERS}
