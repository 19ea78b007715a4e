"""The time of a training step, run in each of the ways. Where other programs run too most blocks of
steps are disturbed: what is told is the 10th percentile of many short ones."""

from __future__ import annotations

import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmark.programs import PROGRAMS, Step
from benchmark.ways import WAYS, in_full

Clock = Callable[[], float]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
WARM_UP = 3
FEWEST = 6  # blocks of each way in a round: with two, the 10th percentile is one of the slowest
SECONDS = 0.3  # of each way in a round
BLOCK = 0.01  # seconds that one measurement lasts about, so that a step of 100 us is timed too


@dataclass(frozen=True, slots=True)
class Cost:
    """10th percentiles over the blocks of all rounds, and the ratios to that of the bare step."""

    program: str
    seconds: float  # of a bare step
    ratios: dict[str, float]
    spread: dict[str, tuple[float, float]]  # smallest and largest ratio of a round


def measure(program: str, device: str, rounds: int, clock: Clock) -> Cost:
    """Times all ways in every round, each round in another order, so that drift hits them alike."""
    torch.manual_seed(0)
    step = PROGRAMS[program](device)
    gc.collect()
    gc.freeze()  # as before a program is traced: what is loaded need not be looked through
    took = {way: min(timed(step, way, 3, 1, device, clock)) for way in WAYS}
    times: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    names = list(WAYS)
    for n in range(rounds):
        for way in names[n % len(names) :] + names[: n % len(names)]:
            count = max(1, round(BLOCK / took[way]))
            blocks = max(FEWEST, round(SECONDS / (count * took[way])))
            times[way].append(timed(step, way, blocks, count, device, clock))
    whole = {way: tenth([t for one in rounds for t in one]) for way, rounds in times.items()}
    ratios = {
        way: [tenth(t) / tenth(bare) for t, bare in zip(times[way], times["bare"], strict=True)]
        for way in WAYS
    }
    return Cost(
        program=program,
        seconds=whole["bare"],
        ratios={way: seconds / whole["bare"] for way, seconds in whole.items()},
        spread={way: (min(values), max(values)) for way, values in ratios.items()},
    )


def tenth(times: list[float]) -> float:
    return sorted(times)[len(times) // 10]


def timed(step: Step, way: str, blocks: int, count: int, device: str, clock: Clock) -> list[float]:
    """Seconds for one step, of each of so many blocks of `count` steps."""
    found = []
    with WAYS[way]() as after_step:
        for _ in range(WARM_UP):
            step()
            after_step()
        wait(device)
        for _ in range(blocks):
            started = clock()
            for _ in range(count):
                step()
                after_step()
            wait(device)
            found.append((clock() - started) / count)
    return found


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def profile(program: str, device: str, steps: int = 200) -> None:
    """Prints where the time goes under the recorder, by the functions' own time."""
    step = PROGRAMS[program](device)
    profiler = cProfile.Profile()
    with in_full():
        step()
        profiler.enable()
        for _ in range(steps):
            step()
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
