"""One sample, bare and watched: is anything different."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from gradscope.diagnose import diagnose
from gradscope.facts import Ending, Severity, Trace
from gradscope.norms.facts import NormOptions
from gradscope.norms.meter import Measure
from gradscope.record import Observation
from gradscope.record.finite import looks_finite, plain
from transparent.samples import Results, Sample, tensors

# What became of a sample, best first. `torch`: it differs in the same bits under a dispatch mode
# that does nothing, because torch itself takes another formula as soon as there is one.
IDENTICAL = "identical"
TORCH = "torch"
RANDOM = "random"  # two bare runs differ already
REFUSED = "refused"  # the bare run raises
ALONE = "alone"  # the sizes alone, which need no mode in backward, change it themselves
# Samples that are as they are told to be: they normalise a single value, take raw scores for
# logarithms of probabilities.
RIGHTLY_TOLD = {("nn.functional.layer_norm", "GS207"), ("nn.functional.nll_loss", "GS412")}
WRONG = ("different", ALONE, "raised", "warned", "noted", "accused")


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    what: str
    detail: str = ""


class _Nothing(TorchDispatchMode):
    """A dispatch mode that only passes on."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class _Seen:
    results: tuple[bytes | None, ...]
    generator: bytes
    warned: tuple[str, ...]
    finite: bool

    def is_same(self, other: _Seen) -> bool:
        return (self.results, self.generator) == (other.results, other.generator)


def compare(sample: Sample) -> Outcome:
    try:
        bare = _see(sample.run, nullcontext())
    except Exception as error:
        return Outcome(sample.name, REFUSED, f"{type(error).__name__}: {error}")
    observation = Observation()
    try:
        alone = _see(sample.run, Observation(measure=Measure(NormOptions()), each_op=False))
        watched = _see(sample.run, observation)
    except Exception as error:
        return Outcome(sample.name, "raised", f"{type(error).__name__}: {error}")
    if not bare.is_same(watched) or not bare.is_same(alone):
        return Outcome(sample.name, *_why_different(sample, bare, watched, alone))
    new = [text for text in (*watched.warned, *alone.warned) if text not in bare.warned]
    if new:
        return Outcome(sample.name, "warned", new[0])
    trace = observation.trace(sample.name, Ending("finished"))
    if trace.notes:
        return Outcome(sample.name, "noted", trace.notes[0])
    if bare.finite and (said := _accusation(trace)):
        return Outcome(sample.name, "accused", said)
    return Outcome(sample.name, IDENTICAL)


@contextmanager
def _nothing_in_forward() -> Iterator[None]:
    """A mode that only passes on, and that backward does not run under."""
    engine: Any = torch.autograd.graph._engine_run_backward

    def without_modes(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return engine(*args, **kwargs)

    with (
        patch.object(torch.autograd, "_engine_run_backward", without_modes),
        patch.object(torch.autograd.graph, "_engine_run_backward", without_modes),
        _Nothing(),  # type: ignore[no-untyped-call]
    ):
        yield


def _see(run: Callable[[], Results], around: AbstractContextManager[object]) -> _Seen:
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with around:
            results = run()
    return _Seen(
        tuple(None if result is None else _bytes(result) for result in results),
        torch.get_rng_state().numpy().tobytes(),
        tuple(str(warning.message) for warning in warned),
        all(_finite(result) for result in tensors(results)),
    )


def _why_different(sample: Sample, bare: _Seen, watched: _Seen, alone: _Seen) -> tuple[str, str]:
    again = _see(sample.run, nullcontext())
    if again.results != bare.results:
        return RANDOM, ""
    under_any = _see(sample.run, _Nothing())  # type: ignore[no-untyped-call]
    if not bare.is_same(alone):  # their mode is there in the forward pass
        in_forward = _see(sample.run, _nothing_in_forward())
        is_torch = under_any.is_same(watched) and any(map(alone.is_same, (under_any, in_forward)))
        return (TORCH, "the sizes alone too") if is_torch else (ALONE, "")
    return (TORCH if under_any.results == watched.results else "different"), ""


def _accusation(trace: Trace) -> str:
    """An error that is found although every value and gradient is finite."""
    found = (one for one in diagnose(trace) if one.severity is Severity.ERROR)
    errors = [one for one in found if (trace.target, one.rule) not in RIGHTLY_TOLD]
    return f"{errors[0].rule} {errors[0].message}" if errors else ""


def _bytes(tensor: torch.Tensor) -> bytes:
    """Everything that a tensor says: kind, shape, and each bit of its values."""
    tensor = tensor.detach()
    head = f"{tensor.dtype} {tensor.layout} ".encode()
    if tensor.is_nested:
        return head + b"".join(map(_bytes, tensor.unbind()))
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    shape = str(tuple(tensor.shape)).encode()
    if tensor.is_meta:
        return head + shape
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return head + shape + flat.view(torch.uint8).numpy().tobytes()


def _finite(tensor: torch.Tensor) -> bool:
    values = plain(tensor.detach())
    return values is None or looks_finite(values)
