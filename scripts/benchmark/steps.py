"""The time of a training step, run in each of the ways."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from benchmark.programs import PROGRAMS, Step
from benchmark.ways import WAYS, in_full

Clock = Callable[[], float]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
WARM_UP = 3
SECONDS = 0.5  # one measurement lasts about that long, so that a step of 100 us is timed too


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the rounds. The ratios are to the bare step of the same round."""

    program: str
    seconds: float  # of a bare step
    ratios: dict[str, float]
    spread: dict[str, tuple[float, float]]  # smallest and largest ratio


def measure(program: str, device: str, rounds: int, clock: Clock) -> Cost:
    """Times all ways in every round, each round in another order, so that drift hits them alike."""
    torch.manual_seed(0)
    step = PROGRAMS[program](device)
    counts = {way: max(3, round(SECONDS / timed(step, way, 3, device, clock))) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    names = list(WAYS)
    for n in range(rounds):
        for way in names[n % len(names) :] + names[: n % len(names)]:
            times[way].append(timed(step, way, counts[way], device, clock))
    ratios = {
        way: [t / bare for t, bare in zip(times[way], times["bare"], strict=True)] for way in WAYS
    }
    return Cost(
        program=program,
        seconds=median(times["bare"]),
        ratios={way: median(values) for way, values in ratios.items()},
        spread={way: (min(values), max(values)) for way, values in ratios.items()},
    )


def timed(step: Step, way: str, count: int, device: str, clock: Clock) -> float:
    """Seconds for one step."""
    with WAYS[way]() as after_step:
        for _ in range(WARM_UP):
            step()
            after_step()
        wait(device)
        started = clock()
        for _ in range(count):
            step()
            after_step()
        wait(device)
        return (clock() - started) / count


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
