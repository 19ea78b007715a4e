"""Scores gradscope, and anomaly mode beside it, on a folder of cases."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from scoring.cases import Case, load, with_twin
from scoring.judge import Row, judge
from scoring.patches import Compared, compared
from scoring.table import show, show_patches
from scoring.tools import Outcome, anomaly_mode, gradscope

WIDTH = 170  # of the table where the output is not a terminal

Judged = TypeVar("Judged")

TOOLS = {"gradscope": gradscope, "anomaly": anomaly_mode}


def run(tools: Collection[str], limit: float, tool: str, program: Path) -> Outcome | None:
    return TOOLS[tool](program, limit) if tool in tools else None


def each(cases: Sequence[Case], jobs: int, judged: Callable[[Case], Judged]) -> list[Judged]:
    """Each case is judged in a thread that waits for the processes of that case."""
    rows: list[Judged] = []
    with ThreadPoolExecutor(jobs) as pool:
        for case, row in zip(cases, pool.map(judged, cases), strict=True):
            print(f"{len(rows) + 1}/{len(cases)} {case.name}", file=sys.stderr, flush=True)
            rows.append(row)
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/score", description=__doc__)
    parser.add_argument("folder", type=Path, help="holds truth.yaml and the programs")
    parser.add_argument("names", nargs="*", help="only these cases (wildcards allowed)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one run")
    parser.add_argument("--no-anomaly", action="store_true", help="gradscope alone: half the time")
    parser.add_argument(
        "--patches",
        action="store_true",
        help="run each leading patch beside the repaired program NAME_fixed.py",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the raw table")
    given = parser.parse_args()
    if not given.patches and not (given.folder / "truth.yaml").is_file():
        parser.error(f"{given.folder} holds no truth.yaml")
    return given


def main() -> int:
    given = arguments()
    cases = (with_twin if given.patches else load)(given.folder, given.names)
    if not cases:
        print(f"no case matches {' '.join(given.names)}", file=sys.stderr)
        return 2
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    rows: Sequence[Row | Compared]
    if given.patches:
        rows = compared_rows = each(cases, given.jobs, partial(compared, limit=given.limit))
        show_patches(compared_rows, console)
    else:
        tools = ["gradscope"] if given.no_anomaly else [*TOOLS]
        rows = judged = each(
            cases, given.jobs, partial(judge, run=partial(run, tools, given.limit))
        )
        show(judged, console)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
