"""Programs that torch itself traces, by each of its tracers: they print the same, whatever watches
them, and a gradient of theirs that breaks beside is found as ever.

The programs are in tests/programs/tracers. One that takes more than a few seconds says so in its
first line: `# slow: why`.
"""

import shutil
from pathlib import Path

import pytest
from apart import in_fork, programs_in, run_plainly, traced, watched

TRACERS = Path(__file__).parent / "programs" / "tracers"
BREAKS = """
x = torch.tensor([0.0, 4.0], requires_grad=True)
x.sqrt().sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", programs_in(TRACERS))
def test_a_traced_program_is_the_same(program, here, capfd):
    text = program.read_text(encoding="utf-8")
    if "inductor" in text and shutil.which("g++") is None:
        pytest.skip("inductor needs a compiler")
    path = here / program.name
    path.write_text(text + BREAKS, encoding="utf-8")

    status = in_fork(lambda: run_plainly(path))
    bare = capfd.readouterr()
    full = traced(path)
    full_out = capfd.readouterr().out
    sizes = watched(path)
    sizes_out = capfd.readouterr().out

    assert status == 0, bare.err
    assert sizes_out == bare.out
    assert sizes.notes == ()
    assert full_out == bare.out
    (culprit,) = (finding for finding in full.findings if finding.rule != "GS902")
    assert (culprit.op, culprit.location.line) == ("sqrt", text.count("\n") + 3)
    assert full.trace.notes == ()
