"""Measures what gradscope costs, and prints a table of each part once it is measured.

Ratios are of one run, on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import torch
from rich.console import Console

from benchmark import frameworks, memory, runs, startup, steps, table
from benchmark.programs import PROGRAMS

PARTS = ("steps", "memory", "startup", "whole", "late", "snapshots", "callbacks")
WIDTH = 130  # of the table where the output is not a terminal


def costs(given: argparse.Namespace) -> Iterator[steps.Cost]:
    for program in given.program or PROGRAMS:
        narrate(f"{program}: {given.rounds} rounds of each way")
        yield steps.measure(program, given.device, given.rounds, steps.CLOCKS[given.clock])


def figures(given: argparse.Namespace, part: str) -> Iterator[table.Figure]:
    narrate(f"{part}: {given.rounds} rounds")
    match part:
        case "memory":
            for program in given.program or ["mlp"]:
                narrate(f"{program}: {given.steps:,} steps")
                yield from table.of_growth(memory.measure(program, given.device, given.steps))
        case "startup":
            yield from table.of_startup(startup.measure(given.rounds))
        case "whole":
            yield from map(table.of_whole, runs.whole(given.rounds))
        case "late":
            yield from map(table.of_late, runs.late(given.rounds))
        case "snapshots":
            yield from map(table.of_copy, runs.copies())
        case "callbacks":
            measured = frameworks.measure(given.rounds, steps.CLOCKS[given.clock])
            yield from map(table.of_callback, measured)


def narrate(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all)")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="only this one")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10_000, help="of the memory part")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock",
        choices=steps.CLOCKS,
        default="wall",
        help="of the steps; cpu, with one thread, is steadier where other programs run too",
    )
    parser.add_argument("--profile", choices=PROGRAMS, help="where the time goes, and nothing else")
    given = parser.parse_args()
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(PARTS)}")
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    if given.profile:
        steps.profile(given.profile, given.device)
        return
    narrate(f"torch {torch.__version__}, {given.device}, threads: {given.threads}")
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    for part in given.parts or PARTS:
        if part != "steps":
            table.show(list(figures(given, part)), console)
            continue
        ways = list(costs(given))
        table.show([figure for cost in ways for figure in table.of_cost(cost)], console)
        table.side_by_side(ways, console)


if __name__ == "__main__":
    main()
