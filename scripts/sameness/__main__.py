"""Traces each program twice, with most of its steps only watched and with all of them looked at in
full, and prints the findings that the two do not share. Fixes are not tried. With --replay: repeats
each program in full from the copies that were made of it, and compares losses bit by bit."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scoring.cases import without_markers

from gradscope.config import Config
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Report, Trace
from gradscope.pipeline import trace
from gradscope.programs import Kept, NoAnswer, Repeat, RunOptions, parse_target, run
from gradscope.programs.snapshots import sleepers

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "gradscope/examples",
    "tests/cases",
    "tests/healthy",
    "tests/programs/odd",
    "tests/programs/real",
)
SECONDS = 120.0  # for one run of a program


@dataclass(frozen=True, slots=True)
class Compared:
    """`alone` are the findings of one of the two. `inspected` of `steps` were looked at in full
    where the program was watched, in `runs` runs. `failed` says why it could not be run."""

    program: Path
    alone: tuple[str, ...] = ()
    failed: str = ""
    steps: int = 0
    inspected: int = 0
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Repeated:
    """`alone` are the steps whose loss was another one when they were repeated, or what went wrong
    in one of the two runs alone. `copies` were asked; together they repeated `steps`."""

    program: Path
    alone: tuple[str, ...] = ()
    failed: str = ""
    steps: int = 0
    copies: int = 0
    symptoms: int = 0


@contextmanager
def _copied(program: Path) -> Iterator[Path]:
    """In a folder of its own, which is the current one meanwhile."""
    folder = Path(tempfile.mkdtemp())  # no object that would remove it at the end of a child
    copy = folder / program.name
    copy.write_text(without_markers(program.read_text("utf-8")), "utf-8")
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program's own
            yield copy
    finally:
        os.chdir(ROOT)
        shutil.rmtree(folder)


def repeated(program: Path, steps: int) -> Repeated:
    sleepers.SHARE = 100.0  # a copy wherever one can be made
    options = RunOptions(steps=steps, time_limit=SECONDS)
    try:
        with _copied(program) as copy, Kept() as kept:
            first = run(parse_target(str(copy)), options, silent=True, kept=kept)
            copies, alone, count = kept.snapshots, [], 0
            for step in copies:
                # One more: what the last step does to the parameters is seen in the next.
                passes = len(first.steps) + 1
                again = replace(options, passes=passes, full_from=step, keep_going=True)
                try:
                    found = kept.ask(step, again, Repeat(), timeout=SECONDS)
                except NoAnswer:
                    alone.append(f"from step {step} on: no answer")
                    continue
                count += len(first.steps) - step
                alone += _unlike(first, found, step)
    except GradscopeError as error:
        return Repeated(program, failed=str(error))
    return Repeated(program, tuple(alone), "", count, len(copies), len(first.symptoms))


def _unlike(first: Trace, again: Trace, step: int) -> Iterator[str]:
    steps = again.steps[: len(first.steps)]
    pairs = zip_longest((one.loss for one in first.steps), (one.loss for one in steps))
    for at, (one, other) in enumerate(pairs):
        if at >= step and repr(one) != repr(other):
            yield f"step {at}, from step {step} on: loss {one} and {other}"
    if first.symptoms and not again.symptoms:
        yield f"from step {step} on: nothing goes wrong"


def compared(program: Path, steps: int) -> Compared:
    try:
        with _copied(program) as copy:
            watched, full = (_report(copy, steps, every_step=every) for every in (False, True))
    except GradscopeError as error:
        return Compared(program, failed=str(error))
    first, second = Counter(_told(watched)), Counter(_told(full))
    alone = [f"watched alone: {one}" for one in (first - second).elements()]
    alone += [f"in full alone: {one}" for one in (second - first).elements()]
    seen = watched.trace
    return Compared(program, tuple(alone), "", len(seen.steps), seen.inspected, watched.runs)


def _report(copy: Path, steps: int, *, every_step: bool) -> Report:
    config = Config(steps=steps, verify=False, every_step=every_step, time_limit=SECONDS)
    return trace(parse_target(str(copy)), config, silent=True)


def _told(report: Report) -> list[str]:
    return [f"verdict {report.verdict}", *map(_spot, report.findings)]


def _spot(finding: Finding) -> str:
    at = finding.location
    place = f"{at.line}:{at.col}" if at is not None else "no place"
    # What could not be seen of a program is told by how it was looked at.
    message = finding.message if finding.name != "unobserved" else ""
    return f"{finding.rule} {finding.name} at {place}, step {finding.step}: {message}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/same", description=__doc__)
    parser.add_argument(
        "places",
        nargs="*",
        type=Path,
        metavar="PLACE",
        help="files or folders (the tests' programs and the examples)",
    )
    parser.add_argument("--steps", type=int, default=100, help="of each run at most (100)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--replay", action="store_true", help="compare repeated steps instead")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    places = [place.resolve() for place in given.places] or [ROOT / name for name in FOLDERS]
    files = [file for place in places for file in (_files(place) if place.is_dir() else [place])]
    ran: list[Any] = []
    ways: dict[bool, Callable[[Path, int], Any]] = {False: compared, True: repeated}
    with ProcessPoolExecutor(given.jobs) as pool:
        for one in pool.map(ways[given.replay], files, [given.steps] * len(files)):
            if one.alone:
                print(f"{one.program.name}:", *(f"  {line}" for line in one.alone), sep="\n")
            if one.failed:
                print(f"{one.program.name}: not run: {one.failed}")
            else:
                ran.append(one)
    print(f"{len(ran)} of {len(files)} programs ran: {sum(bool(one.alone) for one in ran)} differ;")
    print(_repeats_told(ran) if given.replay else _looks_told(ran))
    return any(one.alone for one in ran)


def _looks_told(ran: Sequence[Compared]) -> str:
    return (
        f"{sum(one.inspected for one in ran):,} of {sum(one.steps for one in ran):,} steps were"
        f" looked at in full, {sum(one.runs > 1 for one in ran)} programs run again"
    )


def _repeats_told(ran: Sequence[Repeated]) -> str:
    asked = [one for one in ran if one.copies]
    return (
        f"{len(asked)} of them were repeated from {sum(one.copies for one in asked)} copies,"
        f" {sum(one.steps for one in asked):,} steps in all;"
        f" {sum(one.symptoms > 0 for one in asked)} of these programs fail"
    )


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")


if __name__ == "__main__":
    sys.exit(main())
