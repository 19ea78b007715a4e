"""GS501: NaN and inf that NumPy made, and warned of, are told where it made them."""

import pytest
from corpus import diagnosed_text

# With the filters of Python, and not with those that pytest sets.
STATIONS = """\
import warnings; warnings.resetwarnings()
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
table = rng.normal(size=(32, 4)).astype("float32")
table[:, 2] = 5.0
{lines}
x = torch.from_numpy(scaled)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MADE = [
    # the lines, and what the patch makes of them
    ("spread = table.std(0)\nscaled = (table - table.mean(0)) / spread",
     "scaled = (table - table.mean(0)) / np.where(spread == 0, 1, spread)"),
    ("scaled = table - table.mean(0)\nscaled /= table.std(0)",
     "scaled /= np.where(table_std == 0, 1, table_std)"),
    ("scaled = np.sqrt(table)", None),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "patched"), MADE)
def test_bad_data_is_told_where_numpy_made_it(tmp_path, lines, patched):
    (found,) = diagnosed_text(STATIONS.format(lines=lines), tmp_path, verify=True).findings

    assert (found.rule, found.location.line) == ("GS501", 9 + len(lines.splitlines()))
    if patched is not None:
        assert found.fixes[0].verified
        assert f"+{patched}\n" in found.fixes[0].patch


GIVEN = [
    "table[3, 1] = np.nan\nscaled = table * 2",  # nothing that NumPy made
    "table[3, 1] = np.nan\nscore = np.float32(0) / np.float32(0)\nscaled = table * 2",  # a metric
]


@pytest.mark.parametrize("lines", GIVEN)
def test_what_was_in_the_data_is_told_where_it_comes_in(tmp_path, lines):
    text = STATIONS.format(lines=lines)
    (found,) = diagnosed_text(text, tmp_path).findings

    assert found.rule == "GS501"
    assert "net(x)" in text.splitlines()[found.location.line - 1]


def test_a_fault_of_other_arrays_is_not_blamed(tmp_path):
    lines = "shares = np.zeros(2) / np.zeros(2)\ntable[3, 1] = np.nan\nscaled = table * 2"
    (found,) = diagnosed_text(STATIONS.format(lines=lines), tmp_path).findings

    assert (found.rule, found.op) == ("GS501", "addmm")


def test_a_fault_is_followed_through_other_names(tmp_path):
    lines = "table = (table - table.mean(0)) / table.std(0)\nfirst = table[:8]\nscaled = first * 2"
    (found,) = diagnosed_text(STATIONS.format(lines=lines), tmp_path).findings

    assert (found.rule, found.op, found.location.line) == ("GS501", "divide", 10)
