"""While a CUDA graph is captured nothing is asked of its tensors. No GPU is needed to see that."""

from typing import Any

import pytest
import torch

from gradscope.facts import Ending, Trace
from gradscope.record import Observation


class Graph:
    """Captures nothing; the recorder does not know."""

    def capture_begin(self) -> None: ...

    def capture_end(self) -> None: ...


@pytest.fixture(autouse=True)
def without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)


def step() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    x.sqrt().sum().backward()


def record(program: Any) -> Trace:
    with Observation() as recorder:
        program()
    return recorder.trace("test", Ending("finished"))


def test_a_captured_step_is_not_observed_and_that_is_said():
    def program() -> None:
        graph = Graph()
        for _ in range(2):
            graph.capture_begin()
            step()
            graph.capture_end()

    trace = record(program)

    assert (trace.steps, trace.symptoms, trace.events) == ((), (), ())
    (note,) = trace.notes
    assert "CUDA graphs were not observed" in note


def test_what_runs_after_the_capture_is_observed():
    def program() -> None:
        graph = Graph()
        graph.capture_begin()
        graph.capture_end()
        step()

    assert [symptom.tensor for symptom in record(program).symptoms] == ["x"]


def test_a_captured_backward_is_not_measured(monkeypatch):
    monkeypatch.setattr("gradscope.record.tracing.is_capturing", lambda: True)
    with Observation(each_op=False) as watch:
        step()

    assert watch.steps == 0


def test_the_graph_is_as_it_was_afterwards():
    before = torch.cuda.CUDAGraph.capture_begin
    record(step)

    assert torch.cuda.CUDAGraph.capture_begin is before
