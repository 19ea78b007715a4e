"""Measures what gradscope costs and prints one table. Ratios are of one run, on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import torch
from rich.console import Console

from benchmark import memory, startup, steps, table
from benchmark.programs import PROGRAMS

PARTS = ("steps", "memory", "startup")
WIDTH = 130  # of the table where the output is not a terminal


def figures(given: argparse.Namespace) -> Iterator[table.Figure]:
    parts = given.parts or PARTS
    if "steps" in parts:
        for program in given.program or PROGRAMS:
            narrate(f"{program}: {given.rounds} rounds of each way")
            yield from table.of_cost(steps.measure(program, given.device, given.rounds))
    if "memory" in parts:
        for program in given.program or ["mlp"]:
            narrate(f"{program}: {given.steps:,} steps")
            yield from table.of_growth(memory.measure(program, given.device, given.steps))
    if "startup" in parts:
        narrate(f"start: {given.rounds} rounds")
        yield from table.of_startup(startup.measure(given.rounds))


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
    found = list(figures(given))
    narrate(f"torch {torch.__version__}, {given.device}, threads: {given.threads}")
    table.show(found, Console() if sys.stdout.isatty() else Console(width=WIDTH))


if __name__ == "__main__":
    main()
