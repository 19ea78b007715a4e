"""Programs that somebody repaired: a fix of another size than theirs is never called verified."""

from pathlib import Path

import pytest
from scoring.cases import with_twin
from scoring.patches import ADVICE, EQUAL, UNVERIFIED, VERIFIED, Compared, compared

TWINS = with_twin(Path(__file__).parent / "twins", [])
QUICK = "bce_by_hand"

# The twin takes another convention for what has no value, and these are as good.
ANOTHER_WAY = {
    "direction_of_nothing": "a vector without a direction has the gradient 0, and not 1e6 times it",
}
# What nobody can tell from the program, such as how small a spread may be.
UNKNOWN = {"spread_of_a_policy"}


def is_far_off(row: Compared) -> bool:
    if row.ours is None or row.twins is None:
        return True
    return abs(row.ours - row.twins) > 0.5 * max(abs(row.ours), abs(row.twins))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name == QUICK else [pytest.mark.slow])
        for case in TWINS
    ],
)
def test_the_leading_patch_does_what_the_twin_does(case):
    row = compared(case, 300)

    if case.name in UNKNOWN:
        assert row.outcome in (ADVICE, UNVERIFIED), row
    elif case.name in ANOTHER_WAY:
        assert row.outcome == VERIFIED and not is_far_off(row), row
    else:
        assert row.outcome == EQUAL, row
