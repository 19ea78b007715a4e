"""Prints a table of what was tried and what happened; exit code 1 where anything was wrong."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain

from faulty.command import Command, Ran, folder_with

LOOP = """
import pathlib, sys, time, torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
for step in range(400):
    (torch.where(x > 0, x.sqrt(), x).sum() if step == 300 else x.sum()).backward()
    pathlib.Path("running").touch()
    time.sleep(0.01)
"""
SAVES = """
import signal, sys
def save(number, frame):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""
BROKEN = """
import torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), x).sum().backward()
"""
# Every file takes so many bytes and no more: a disk that is full, at every write of ours.
FULL = (
    "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"
)
Row = tuple[str, str, str]  # what was tried, what happened, what was wrong of it


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--interrupts", type=int, default=20)
    parser.add_argument("--terminations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    rows: list[Row] = []
    for row in chain(
        moments("kill -9", given.kills, signal.SIGKILL, 4.0, lambda ran: "" if ran.code else "?"),
        moments("Ctrl-C", given.interrupts, signal.SIGINT, 4.0, interrupted),
        terminated(given.terminations),
        full_disks(),
    ):
        rows.append(row)
        print(f"{row[0]:44} {row[1]:40} {row[2] or 'right'}", flush=True)
    wrong = sum(bool(row[2]) for row in rows)
    print(f"{len(rows)} tried, {wrong} wrong")
    return 1 if wrong else 0


def moments(
    name: str, count: int, number: signal.Signals, within: float, judge: Callable[[Ran], str]
) -> Iterator[Row]:
    """A signal at random moments, from the first import to the trying of fixes."""
    for _ in range(count):
        with folder_with(LOOP) as folder:
            moment = random.uniform(0.02, within)
            command = Command(folder, "trace", "train.py", "--steps", "1000")
            time.sleep(moment)
            command.send(number)
            yield told(f"{name} after {moment:.2f} s", command.ended(), judge)


def interrupted(ran: Ran) -> str:
    if ran.code not in (1, 2, 130):
        return f"exit code {ran.code}"
    # Whoever presses Ctrl-C waits; the machine may be a busy one.
    return "" if ran.seconds < 3 else "it went on"


def terminated(count: int) -> Iterator[Row]:
    """SIGTERM to a program that has a handler of its own for it."""
    for number in range(count):
        with folder_with(SAVES + LOOP) as folder:
            command = Command(folder, "trace", "train.py", "--steps", "1000")
            while not (folder / "running").exists() and not command.is_over:
                time.sleep(0.01)
            time.sleep(random.uniform(0, 1))
            command.send(signal.SIGTERM)
            yield told(f"SIGTERM, handler of its own, {number + 1}", command.ended(), saved)


def saved(ran: Ran) -> str:
    if ran.out.count("saved") != 1:
        return f"its handler ran {ran.out.count('saved')} times"
    return "" if "train.py:" in ran.out else "no report"


def full_disks() -> Iterator[Row]:
    """Files that take from no byte to more than all of them."""
    for size in (0, 1, 100, 4_000, 100_000):
        for words in (
            ("trace", "train.py", "--output", "report.txt"),
            ("fix", "train.py", "--write"),
            ("check", "train.py", "--report", "sarif=report.sarif"),
        ):
            with folder_with(BROKEN) as folder:
                ran = Command(folder, *words, before=FULL.format(size)).ended()
                text = (folder / "train.py").read_text()
                whole = text == BROKEN or ("torch.where" in text and text.endswith("\n"))
                row = told(f"{' '.join(words[:2])}, files of {size:,} bytes", ran, lambda ran: "")
                yield row if whole else (*row[:2], f"the program is torn; {row[2]}")


def told(tried: str, ran: Ran, judge: Callable[[Ran], str]) -> Row:
    was_killed = ran.code == -signal.SIGKILL
    wrong = [judge(ran)]
    wrong += ["it hung"] if ran.code is None else []
    wrong += [f"{ran.orphans} orphans"] if ran.orphans else []
    stays = [] if was_killed else ran.left  # until the next run
    wrong += [f"left {', '.join(stays)}"] if stays else []
    wrong += ["internal error"] if "internal error" in ran.out else []
    happened = f"exit {ran.code} after {ran.seconds:.1f} s"
    if wrong[0] or len(wrong) > 1:
        print(ran.out[-2000:], file=sys.stderr)
    return tried, happened, "; ".join(one for one in wrong if one)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
