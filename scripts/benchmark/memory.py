"""What the recorder holds on to over a long healthy run."""

from __future__ import annotations

import gc
import os
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmark.programs import PROGRAMS
from benchmark.ways import in_full


@dataclass(frozen=True, slots=True)
class Held:
    """What the process holds after a number of steps."""

    traced: int  # bytes of Python objects
    resident: int  # bytes, 0 where the system does not tell
    tensors: int  # alive


@dataclass(frozen=True, slots=True)
class Growth:
    """After a tenth of the steps, when every cache is full, and at the end."""

    program: str
    steps: int
    early: Held
    late: Held

    @property
    def per_step(self) -> float:
        """Bytes of Python objects."""
        return (self.late.traced - self.early.traced) / (self.steps - self.steps // 10)


def measure(program: str, device: str, steps: int) -> Growth:
    torch.manual_seed(0)
    step = PROGRAMS[program](device)
    tracemalloc.start()
    try:
        with in_full():
            for _ in range(steps // 10):
                step()
            early = held()
            for _ in range(steps - steps // 10):
                step()
            late = held()
    finally:
        tracemalloc.stop()
    return Growth(program, steps, early, late)


def held() -> Held:
    gc.collect()
    return Held(
        traced=tracemalloc.get_traced_memory()[0],
        resident=resident(),
        tensors=sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()),
    )


def resident() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
