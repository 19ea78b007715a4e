"""Programs that somebody repaired: a fix of another size than theirs is never called verified.

A file of `twins` holds both: what ends in `# -` is in the broken program alone, and what a comment
`# + ` has, in the repaired one alone.
"""

import re
from pathlib import Path

import pytest
from scoring.cases import with_twin
from scoring.patches import ADVICE, EQUAL, UNVERIFIED, VERIFIED, Compared, compared

TWINS = sorted((Path(__file__).parent / "twins").glob("*.py"))
REMOVED = "  # -"
ADDED = re.compile(r"^(\s*)# \+ ?", re.MULTILINE)
QUICK = "bce_by_hand"

# The twin takes another convention for what has no value, and these are as good.
ANOTHER_WAY = {
    "half_weights_after_a_warm_up": "float32 alone, and not the layers in bfloat16 by autocast",
    "direction_of_nothing": "a vector without a direction has the gradient 0, and not 1e6 times it",
}
# What nobody can tell from the program, such as how small a spread may be.
UNKNOWN = {"spread_of_a_policy"}


def is_far_off(row: Compared) -> bool:
    if row.ours is None or row.twins is None:
        return True
    return abs(row.ours - row.twins) > 0.5 * max(abs(row.ours), abs(row.twins))


def both(text: str) -> tuple[str, str]:
    """The broken program, and the repaired one."""
    lines = text.splitlines(keepends=True)
    broken = "".join(line.replace(REMOVED, "") for line in lines if not ADDED.match(line))
    repaired = "".join(line for line in lines if not line.endswith(f"{REMOVED}\n"))
    return broken, ADDED.sub(r"\1", repaired)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == QUICK else [pytest.mark.slow])
        for path in TWINS
    ],
)
@pytest.mark.long
def test_the_leading_patch_does_what_the_twin_does(path, tmp_path):
    broken, repaired = both(path.read_text(encoding="utf-8"))
    assert broken != repaired, "no line is marked"
    (tmp_path / path.name).write_text(broken, encoding="utf-8")
    (tmp_path / f"{path.stem}_fixed.py").write_text(repaired, encoding="utf-8")
    (case,) = with_twin(tmp_path, [])

    row = compared(case, 300)

    if case.name in UNKNOWN:
        assert row.outcome in (ADVICE, UNVERIFIED), row
    elif case.name in ANOTHER_WAY:
        assert row.outcome == VERIFIED and not is_far_off(row), row
    else:
        assert row.outcome == EQUAL, row
