"""Bad values that workers of a DataLoader make: the dataset's line, the sample, the worker."""

import pytest

import gradscope

PROGRAM = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        x = torch.full((4,), float(index))
        if index == BAD:
            x = (x - index).log()
        return x / 32, torch.tensor(1.0)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Noisy(), batch_size=4, num_workers=2, shuffle=True)
    for x, y in loader:
        optimizer.zero_grad()
        (model(x).squeeze() - y).square().mean().backward()
        optimizer.step()
"""

STREAMED = (
    ("import DataLoader, Dataset", "import DataLoader, IterableDataset"),
    ("(Dataset)", "(IterableDataset)"),
    ("    def __len__(self):\n        return 32\n\n", ""),
    (
        "    def __getitem__(self, index):",
        "    def __iter__(self):\n        return map(self.one, range(16))\n\n"
        "    def one(self, index):",
    ),
    (", shuffle=True", ""),
)


def traced(here, bad):
    (here / "train.py").write_text(PROGRAM.replace("BAD", str(bad)))
    return gradscope.trace("train.py", silent=True, verify=False, every_step=True)


@pytest.mark.long
def test_the_line_the_sample_and_the_worker_are_told(here):
    report = traced(here, 21)

    (finding,) = report.findings
    assert finding.rule == "GS501"
    assert "sample 21 of the dataset holds inf; worker " in finding.message
    assert finding.location.line == 12
    assert finding.op == "log"
    assert finding.evidence["sample"] == 21
    assert finding.evidence["worker"] in (0, 1)
    assert " in 1 sample" not in finding.why  # of the batch, which has numbers of its own
    assert not [one for one in finding.numbers if "sample" in one]


@pytest.mark.long
def test_a_sound_dataset_is_sound(here):
    assert traced(here, -1).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_batch_of_no_known_samples_is_told_by_its_worker(here, number):
    """An iterable dataset, whose samples have no index."""
    stream = PROGRAM
    for old, new in STREAMED:
        stream = stream.replace(old, new)
    stream = stream.replace("BAD", str(number))
    (here / "train.py").write_text(stream)

    report = gradscope.trace("train.py", silent=True, verify=False, every_step=True)

    (finding,) = report.findings
    assert finding.message.startswith("a sample of the dataset holds inf; worker ")
    assert finding.evidence["sample"] is None
