"""Edge inputs: those that break a planted function are found, shrunk and written as a test."""

import subprocess
import sys
from pathlib import Path

import pytest
from corpus import clamps_pass_on_at_their_edge

from gradscope.check.cases import cases_of
from gradscope.check.whole import check
from gradscope.config import load_config
from gradscope.facts import Report, Severity

PROGRAM = """\
import torch


def distance(x, y):
    return (x - y).square().sum(-1).sqrt().mean()


def distance_fixed(x, y):
    return (x - y).square().sum(-1).clamp_min(1e-12).sqrt().mean()


def gamma(x):
    return torch.where(x < 0.003, 12.9 * x, x**0.5).mean()


def angle(x):
    return torch.acos(x.clamp(-1, 1)).mean()


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def masked_mean_fixed(x, mask):
    return (x * mask).sum() / mask.sum().clamp_min(1)


def spread(x):
    return x.std(0).mean()


def attention(scores, values):
    weights = scores.softmax(-1)
    return torch.nan_to_num(weights @ values).sum()


def attention_fixed(scores, values):
    lonely = scores.isneginf().all(-1, keepdim=True)
    return (scores.masked_fill(lonely, 0.0).softmax(-1) @ values).sum()


def biased(x, mask):
    return ((x + mask).softmax(-1) * x).sum()


def weighted(x, mask):
    return (x * mask).sum() / mask.sum()


def weighted_fixed(x, mask):
    return (x * mask).sum() / mask.sum().clamp_min(1)


def saturates(logits):
    return -torch.log(1 - torch.sigmoid(logits)).mean()


def saturates_fixed(logits):
    return -torch.nn.functional.logsigmoid(-logits).mean()


def probability(x):
    return -torch.log(x).mean()


def entropy(logits):
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum(-1).mean()


def entropy_fixed(logits):
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp.masked_fill(logp.isneginf(), 0.0)).sum(-1).mean()


def binary(logits, labels):
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


def hinge(logits, labels):
    return torch.relu(1 - logits * (2 * labels - 1)).mean()


def divergence(logits, target):
    return torch.nn.functional.kl_div(logits.log_softmax(-1), target)


def overlap(x, region):
    return (x * region).sum() / region.sum()


def bisector(x, y):
    return (x + y).square().sum(-1).sqrt().mean()


def per_sentence(x, lengths):
    seen = torch.arange(x.shape[1]) < lengths[:, None]
    return ((x[:, 1:] * seen[:, 1:]).sum(1) / lengths).mean() + x[:, :-1].mean()


def per_sentence_fixed(x, lengths):
    seen = torch.arange(x.shape[1]) < lengths[:, None]
    return ((x[:, 1:] * seen[:, 1:]).sum(1) / lengths.clamp_min(1)).mean() + x[:, :-1].mean()


def duplicates(x):
    return (x[:, None] - x).square().sum(-1).clamp_min(1e-12).sqrt().mean()


def hangs_on_zeros(x):
    while not x.any():
        pass
    return x.sqrt().sum()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses.py").write_text(PROGRAM)
    return tmp_path


def stressed(name: str, **inputs: str) -> Report:
    listed = ", ".join(f"{key}: {value}" for key, value in inputs.items())
    Path("gradscope.yaml").write_text(
        f"verify: false\nstress: true\ntargets:\n  - target: losses.py:{name}\n"
        f"    inputs: {{{listed}}}\n"
    )
    config = load_config()
    (report,) = check(config, cases_of(config)).reports
    return report


def errors(report: Report) -> list[tuple[str, object]]:
    return [
        (finding.rule, finding.evidence["stress"])
        for finding in report.findings
        if finding.severity is Severity.ERROR
    ]


POINTS = {"x": "{shape: [4, 3], seed: 0}", "y": "{shape: [4, 3], seed: 1}"}
SCORES = {"scores": "{shape: [4, 4], seed: 0}", "values": "{shape: [4, 3], seed: 1}"}
ADDED = {"x": "{shape: [4, 3]}", "mask": "'torch.zeros(4, 3)'"}
FACTOR = {"x": "{shape: [4, 3]}", "mask": "'torch.ones(4, 3)'"}
LOGITS = {"logits": "{shape: [4, 3], seed: 0}"}
LABELS = "'(torch.arange(12) % 2).view(4, 3).float()'"
TARGET = "{shape: [4, 3], range: [0, 1], requires_grad: false}"
AT_ZERO = [("GS202", "the lower end in x"), ("GS102", "just above the lower end in x")]
SENTENCES = {"x": "{shape: [3, 4], seed: 0}", "lengths": "{values: [4, 2, 3], dtype: int64}"}
MASK = {"x": "{shape: [4, 3]}", "mask": "'torch.ones(4, 3, dtype=torch.bool)'"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs", "found"),
    [
        ("distance", POINTS, [("GS102", "y equal to x")]),
        ("distance_fixed", POINTS, []),
        ("gamma", {"x": "{shape: [5], range: [0, 1]}"}, [("GS101", "the lower end in x")]),
        ("gamma", {"x": "{shape: [5], range: [0.01, 1]}"}, []),
        ("angle", {"x": "{shape: [5], range: [-0.9, 0.9]}"}, []),
        ("masked_mean", MASK, [("GS201", "all False in mask")]),
        ("masked_mean_fixed", MASK, []),
        ("attention", SCORES, [("GS206", "a row of -inf in scores")]),
        ("attention_fixed", SCORES, []),
        ("biased", ADDED, [("GS206", "a row of -inf in mask")]),
        ("weighted", FACTOR, [("GS201", "all 0 in mask")]),
        ("weighted_fixed", FACTOR, []),
        ("spread", {"x": "{shape: [4, 3], nonempty: true}"}, [("GS207", "a single item")]),
        ("saturates", LOGITS, [("GS202", "values of 20 in logits")]),
        ("saturates_fixed", LOGITS, []),
        ("probability", {"x": "torch.rand(4) + 0.1"}, []),  # inf is its value at 0
        ("probability", {"x": "{shape: [4], range: [0, 1]}"}, AT_ZERO),
        ("entropy", LOGITS, [("GS501", "one -inf in logits")]),
        ("entropy_fixed", LOGITS, []),
        ("binary", {**LOGITS, "labels": LABELS}, []),  # no softmax: -inf is no masked score
        ("hinge", {**LOGITS, "labels": LABELS}, []),
        ("divergence", {**LOGITS, "target": TARGET}, []),  # nobody moves a target
        ("overlap", {"x": "{shape: [4, 3]}", "region": LABELS}, [("GS201", "all 0 in region")]),
        ("bisector", POINTS, [("GS102", "y opposite to x")]),
        ("per_sentence", SENTENCES, [("GS201", "zeros in lengths")]),
        ("per_sentence_fixed", SENTENCES, []),
    ],
)
def test_the_planted_edge_is_found_and_no_other(folder, name, inputs, found):
    report = stressed(name, **inputs)

    assert [one for one in errors(report) if one not in found] == []
    assert set(found) <= set(errors(report))


@pytest.mark.long
def test_the_test_that_is_written_fails_until_the_function_is_repaired(folder):
    (finding, *_) = stressed("distance", **POINTS).findings
    text = str(finding.evidence["test"])
    (folder / "test_found.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_found.py"]

    before = subprocess.run(command, cwd=folder, capture_output=True, timeout=60)
    (folder / "losses.py").write_text(PROGRAM.replace(".sum(-1).sqrt()", ".sum(-1).add(1).sqrt()"))
    after = subprocess.run(command, cwd=folder, capture_output=True, timeout=60)

    assert (before.returncode, after.returncode) == (1, 0), before.stdout
    assert "torch.tensor([[0.0]])" in text  # shrunk from 4 x 3 random numbers


@pytest.mark.slow
def test_a_variant_that_hangs_costs_itself_alone(folder, monkeypatch):
    monkeypatch.setattr("gradscope.check.stress.found.PATIENCE", 1.0)

    report = stressed("hangs_on_zeros", x="{values: [1.0, 2.0]}")

    assert ("GS102", "one zero in x") in errors(report)


def test_what_only_half_precision_breaks_is_a_note(folder):
    report = stressed("distance_fixed", **POINTS)
    diagonal = stressed("duplicates", x=POINTS["x"])

    assert report.findings == ()
    noted = [(one.severity, one.evidence["stress"]) for one in diagonal.findings]
    assert noted == [(Severity.NOTE, "float16")][: clamps_pass_on_at_their_edge()]
    assert diagonal.verdict == "healthy"


NETWORK = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        x = self.layer(x)
        return x / x.norm(dim=-1, keepdim=True)


def direction(output, target):
    length = target.square().sum(-1, keepdim=True).sqrt()
    return (output - target / length).square().mean()


def direction_fixed(output, target):
    length = target.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-6)
    return (output - target / length).square().mean()


torch.manual_seed(0)
batch = (torch.randn(4, 3), torch.randn(4, 2))
named = {"x": batch[0], "target": batch[1]}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "batch", "words"),
    [
        ("direction", "batch", "a row of zeros in batch[1]"),
        ("direction", "named", "a row of zeros in batch['target']"),
        ("direction_fixed", "batch", None),
    ],
)
def test_the_batch_of_a_model_is_tried_too(folder, loss, batch, words):
    Path("net.py").write_text(NETWORK)
    Path("gradscope.yaml").write_text(
        "verify: false\nstress: true\ntargets:\n  - model: net.py:Net\n"
        f"    loss: net.py:{loss}\n    batch: net.py:{batch}\n"
    )
    config = load_config()

    (report,) = check(config, cases_of(config)).reports

    assert all("stress: 0 edge inputs" not in one for one in report.remarks)
    found = [one for one in report.findings if "stress" in one.evidence]
    assert bool(found) == (words is not None)
    for one in found:
        scope: dict[str, object] = {}
        exec(str(one.evidence["test"]), scope)
        (test,) = [value for name, value in scope.items() if name.startswith("test_")]
        with pytest.raises(AssertionError):
            test()  # type: ignore[operator]
