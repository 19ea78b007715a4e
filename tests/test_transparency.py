"""Every so many entries of torch's own test databases, with and without the recorder.

`scripts/transparency` runs them all.
"""

from collections.abc import Iterable

import pytest
import torch

pytest.importorskip("expecttest")  # torch's databases need it
from transparent.compare import WRONG, Outcome, compare
from transparent.samples import Sample, modules, operators, optimizers

from gradscope.record.mode import RecordingMode

pytestmark = pytest.mark.filterwarnings("ignore")  # what they make samples with is deprecated


@pytest.mark.parametrize(
    ("dtype", "every"),
    [
        (torch.float32, 5),
        (torch.float64, 20),
        (torch.bfloat16, 20),
        (torch.float16, 20),
        (torch.complex64, 20),
    ],
    ids=str,
)
@pytest.mark.long
def test_operators(dtype, every):
    assert wrong(operators(dtype, 1, every)) == []


def test_modules():
    assert wrong(modules(torch.float32, 1, 8)) == []


def test_optimizers():
    assert wrong(optimizers(torch.float32, 1)) == []


def wrong(samples: Iterable[Sample]) -> list[Outcome]:
    outcomes = [compare(sample) for sample in samples]

    assert len(outcomes) >= 8
    return [outcome for outcome in outcomes if outcome.what in WRONG]


def test_a_recorder_that_changes_something_is_told():
    """The comparison itself: each way to be wrong is seen."""

    def seeing() -> list[torch.Tensor | None]:
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

        modes = _get_current_dispatch_mode_stack()
        return [torch.tensor(float(any(isinstance(mode, RecordingMode) for mode in modes)))]

    assert compare(Sample("changes", seeing)).what == "different"
    assert compare(Sample("steady", lambda: [torch.ones(2)])).what == "identical"
    assert compare(Sample("throws", lambda: [torch.ones(2).nonsense])).what == "refused"
