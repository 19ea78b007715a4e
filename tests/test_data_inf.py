"""An inf in an array: meant as a mask or a distance, bad data once weights multiply it."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from corpus import diagnosed_text

from gradscope.config import Config
from gradscope.facts import Finding
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.record import Observation

SCRIPT = """import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Counts(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        counts = np.arange(i, i + 4).astype(np.float32)
        with np.errstate(divide="ignore"):
            return {}


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for x in DataLoader(Counts(), batch_size=4):
    loss = model({}).square().mean()
    loss.backward()
"""


def told(folder: Path, item: str, used: str = "x") -> tuple[Finding, ...]:
    (folder / "train.py").write_text(SCRIPT.format(item, used))
    return trace(parse_target(str(folder / "train.py")), Config(), silent=True).findings


def test_the_data_is_named_and_not_the_layer_in_which_nan_is_born(tmp_path):
    (found,) = told(tmp_path, "np.log(counts)")

    assert found.rule == "GS501" and "inf at 1 of 4 elements" in found.message
    assert found.tensors[0].neginf == 1


@pytest.mark.parametrize(
    ("item", "used"),
    [
        ("np.log1p(counts)", "x"),
        ("np.log(counts)", "torch.where(x.isinf(), 0.0, x)"),
        ("np.log(counts)", "torch.softmax(x, -1)"),
        ("np.log(counts)", "x.exp()"),
    ],
)
def test_an_inf_that_is_masked_before_is_meant(tmp_path, item, used):
    assert told(tmp_path, item, used) == ()


@pytest.mark.long
def test_a_line_that_numpy_warned_of_is_not_blamed_for_other_data(gradscope, tmp_path):
    plotted = "\nshares = np.log(np.zeros(2))  # of a plot\n\nclass Counts"
    (tmp_path / "train.py").write_text(
        SCRIPT.replace("\nclass Counts", plotted).format("np.log(counts)", "x")
    )
    done = gradscope("trace", "train.py", "--format", "json")
    (found,) = json.loads(done.stdout)["findings"]

    assert found["location"]["line"] == 23, found["message"]  # where the model reads it
    assert "train.py:9: RuntimeWarning" in done.stderr


def test_python_shows_its_warnings_as_before():
    before = warnings.showwarning
    with Observation():
        assert warnings.showwarning is not before
        with pytest.warns(RuntimeWarning):
            np.log(np.zeros(1))

    assert warnings.showwarning is before


LATE = """\
import math
import torch
w = torch.nn.Parameter(torch.ones(3))
for step in range(9):
    for _ in range(60):
        torch.zeros(1).log()
    far = torch.tensor(math.inf if step == 8 else 2.0)
    a, b = far + 1.0, w.square().sum() + 1.0
    loss = a / (a + b)
    loss.backward()
    w.grad = None
"""


def test_an_inf_is_told_after_many_that_did_no_harm(tmp_path):
    (found,) = diagnosed_text(LATE, tmp_path).findings

    assert (found.rule, found.location.line) == ("GS103", 9)
    assert found.evidence["operands"] == {"self": math.inf, "other": math.inf}
