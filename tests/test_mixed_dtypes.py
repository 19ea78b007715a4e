"""GS305: an operand of another dtype, which an op refuses for that alone."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    signal = {signal}
    label = {label}
    logits = net(signal).squeeze(1)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SIGNAL = "torch.randn(8, 2, 8)"
LABEL = "torch.randint(0, 2, (8,)).float()"


@pytest.mark.parametrize(
    ("signal", "label", "dtype", "line", "written"),
    [
        (
            "torch.from_numpy(rng.normal(size=(8, 2, 8)))",
            LABEL,
            "float64",
            12,
            "+    signal = torch.from_numpy(rng.normal(size=(8, 2, 8))).float()",
        ),
        (
            SIGNAL,
            "torch.randint(0, 2, (8,))",
            "int64",
            13,
            "+    label = torch.randint(0, 2, (8,)).float()",
        ),
    ],
)
def test_what_is_of_another_dtype_is_converted(signal, label, dtype, line, written, tmp_path):
    text = PROGRAM.format(signal=signal, label=label)
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.rule, found.location.line) == ("GS305", line)
    assert (found.evidence["dtype"], found.evidence["wanted"]) == (dtype, "float32")
    assert written in found.fixes[0].patch


def test_shapes_that_do_not_fit_are_not_told_as_a_dtype(tmp_path):
    text = PROGRAM.format(signal="torch.randn(8, 3, 8, dtype=torch.float64)", label=LABEL)

    assert diagnosed_text(text, tmp_path).findings == ()


def test_dtypes_that_an_op_takes_are_fine(tmp_path):
    text = PROGRAM.format(signal=SIGNAL, label="torch.randint(0, 2, (8,)).double()")

    assert diagnosed_text(text, tmp_path).findings == ()
