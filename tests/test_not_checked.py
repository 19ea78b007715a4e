"""What stays below a limit of ours is checked; what is beyond one is said."""

from collections.abc import Iterator

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Mine(torch.Tensor):
    pass


w = torch.ones(9, requires_grad=True)
{do}
"""
BEYOND = {
    "shapes": (
        "for n in range({n}): Double.apply(w[n:]).sum().backward()",
        4,
        5,
        "the backward of `Double` beyond its first 4 combinations of shapes",
    ),
    "subclasses": (
        "for n in range({n}): Double.apply(w.as_subclass(Mine)).sum().backward()\n"
        "w.sum().backward()",
        0,
        1,
        "the backward of `Double`",
    ),
    "memory": (
        "buffer = torch.empty({n}).zero_(); w.sum().backward()",
        1_000_000,
        1_000_001,
        "whether memory is read that nothing was written to",
    ),
    "optimizers": (
        "made = [torch.optim.SGD([w], lr=0.01) for _ in range({n})]\n"
        "w.sum().backward()\n"
        "for one in made: one.step()",
        16,
        17,
        "what becomes of the steps of further optimizers",
    ),
    "writes": (
        "many = [torch.zeros(1) for _ in range({n})]\n"
        "for one in many: one.add_(1)\n"
        "w.sum().backward()",
        256,
        257,
        "whether some writes overwrite what backward needs",
    ),
}


def _both() -> Iterator[tuple[str, int, bool]]:
    for name, (_, below, beyond, _) in BEYOND.items():
        yield from ((name, below, False), (name, beyond, True))


@pytest.mark.parametrize(("name", "n", "is_said"), list(_both()))
@pytest.mark.long
def test_a_limit_is_said_where_it_is_met(name, n, is_said, tmp_path):
    do, _, _, what = BEYOND[name]

    report = diagnosed_text(PROGRAM.format(do=do.format(n=n)), tmp_path)

    assert [one.what for one in report.not_checked] == [what] * is_said
    assert report.findings == ()


def test_the_part_of_a_large_graph_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr("gradscope.record.sizes.crossings.MOST_NODES", 50)
    chain = "y = w\nfor _ in range({n}): y = y * 1.0\ny.sum().backward()"

    for n, said in ((10, 0), (100, 1)):
        report = diagnosed_text(PROGRAM.format(do=chain.format(n=n)), tmp_path)
        assert len(report.not_checked) == said
        measured = report.trace.magnitudes
        assert measured is not None and [leaf.name for leaf in measured.leaves] == ["w"]
