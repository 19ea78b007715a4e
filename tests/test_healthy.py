"""Clean programs: nothing is found, and no warning is given; a note may stand."""

import pytest
from corpus import diagnosed, programs

from gradscope.facts import Severity


@pytest.mark.parametrize("program", programs("healthy"), ids=lambda program: program.name)
@pytest.mark.long
def test_silent(program, here):
    report = diagnosed(program, here)

    loud = [f"{f.name}: {f.message}" for f in report.findings if f.severity is not Severity.NOTE]
    assert loud == []
    assert report.verdict == "healthy"
    assert report.trace.steps
