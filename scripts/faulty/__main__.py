"""Prints a table of what was tried and what happened; exit code 1 where anything was wrong."""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from itertools import chain
from pathlib import Path

from faulty.command import LIMIT, Command, Ran, folder_with

PROGRAMS = Path(__file__).parents[2] / "tests" / "programs"

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
ACTS = """
import os, pathlib, socket
with open("log.txt", "a") as log:
    log.write("started\\n")
pathlib.Path("old.ckpt").touch()
os.remove("old.ckpt")
{at_start}
import torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), x).sum().backward()
with open("log.txt", "a") as log:
    log.write("saved\\n")
{at_end}
"""
CONNECTS = 'socket.create_connection(("127.0.0.1", PORT)).close()'
BROKEN = """
import torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), x).sum().backward()
"""
# Every file takes so many bytes and no more: a disk that is full, at every write of ours. What
# Python compiles would be cut off by that as well, and be read as it is by the next run.
FULL = (
    "import resource, signal, sys; sys.dont_write_bytecode = True; "
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"
)
STEP = "\nimport torch\nkept = torch.ones(2, requires_grad=True)\nkept.sum().backward()\n"
PLAINLY = "import os, runpy; runpy.run_path(os.path.abspath('train.py'), run_name='__main__')"
Row = tuple[str, str, str]  # what was tried, what happened, what was wrong of it


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--interrupts", type=int, default=20)
    parser.add_argument("--terminations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="a wildcard for what is tried: 'Ctrl-C*'")
    given = parser.parse_args()
    random.seed(given.seed)
    rows: list[Row] = []
    ctrl_c = partial(moments, signal.SIGINT, given.interrupts, interrupted)
    kinds: dict[str, Callable[[], Iterator[Row]]] = {
        "kill -9": partial(moments, signal.SIGKILL, given.kills, killed, "kill -9", 4.0),
        "Ctrl-C": partial(ctrl_c, "Ctrl-C", 4.0),
        "Ctrl-C in imports": partial(ctrl_c, "Ctrl-C in imports", 1.0),
        "SIGTERM": partial(handled, signal.SIGTERM, given.terminations),
        "SIGHUP": partial(handled, signal.SIGHUP, 2),
        "SIGUSR1": partial(handled, signal.SIGUSR1, 2),
        "SIGUSR2": partial(handled, signal.SIGUSR2, 2),
        "full disk": full_disks,
        "effects": effects,
        "odd programs": partial(unchanged, "odd"),
        "tracers": partial(unchanged, "tracers"),
    }
    for row in chain.from_iterable(
        rows_of() for kind, rows_of in kinds.items() if fnmatch(kind, given.only)
    ):
        rows.append(row)
        print(f"{row[0]:44} {row[1]:40} {row[2] or 'right'}", flush=True)
    wrong = sum(bool(row[2]) for row in rows)
    print(f"{len(rows)} tried, {wrong} wrong")
    return 1 if wrong else 0


def moments(
    number: signal.Signals, count: int, judge: Callable[[Ran], str], name: str, within: float
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
    if ran.code == -signal.SIGINT and ", in main" not in ran.out:
        return ""  # Python was still starting
    if ran.code not in (1, 2, 130):
        return f"exit code {ran.code}"
    # Whoever presses Ctrl-C waits; the machine may be a busy one.
    return "" if ran.seconds < 3 else "it went on"


def killed(ran: Ran) -> str:
    return "" if ran.code else "it ended as if nothing had been"


def handled(number: signal.Signals, count: int) -> Iterator[Row]:
    """A signal to a program that has a handler of its own for it."""
    for nth in range(count):
        with folder_with(SAVES.replace("SIGTERM", number.name) + LOOP) as folder:
            command = Command(folder, "trace", "train.py", "--steps", "1000")
            while not (folder / "running").exists() and not command.is_over:
                time.sleep(0.01)
            time.sleep(random.uniform(0, 1))
            command.send(number)
            tried = f"{number.name}, handler of its own, {nth + 1}"
            yield told(tried, command.ended(), saved)


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


def effects() -> Iterator[Row]:
    """What a program does to the outside is done once, up to the failing step and not past it,
    however often it is run to try fixes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        connects = CONNECTS.replace("PORT", str(server.getsockname()[1]))
        for name, program in {
            "log and deletion": ACTS.format(at_start="", at_end=""),
            "connection at its end": ACTS.format(at_start="", at_end=connects),
            "connection at its start": ACTS.format(at_start=connects, at_end=""),
        }.items():
            with folder_with(program) as folder:
                ran = Command(folder, "trace", "train.py").ended()
                lines = (folder / "log.txt").read_text().split()
            connections = accepted(server)
            runs = re.search(r"ran\s+your\s+program\s+(\w+)", ran.out)
            row = told(f"effects: {name}", ran, lambda ran: "" if ran.code == 1 else "no finding")
            happened = f"{runs[1] if runs else 'once'} run; {len(lines)} lines, {connections} calls"
            right = lines == ["started"] and connections == name.endswith("start")
            yield row[0], happened, row[2] if right else f"done again; {row[2]}"


def accepted(server: socket.socket) -> int:
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except TimeoutError:
            return count
        count += 1


def unchanged(kind: str) -> Iterator[Row]:
    """Programs of tests/programs print what they print without us, and nothing is found."""
    for path in sorted((PROGRAMS / kind).glob("*.py")):
        text = path.read_text(encoding="utf-8") + STEP
        with folder_with(text) as folder:
            bare = Command(folder, before="import sys; sys.argv = ['train.py']", runs=PLAINLY)
            plainly = bare.ended(2 * LIMIT)
        if "ModuleNotFoundError" in plainly.out:
            yield f"{kind}: {path.stem}", "not run: it needs another package", ""
            continue
        for words in (("trace", "--no-verify"), ("norms",)):
            with folder_with(text) as folder:
                command = Command(folder, *words, "train.py", "--output", "report.txt")
                ran = command.ended(2 * LIMIT)
            ran = replace(ran, left=tuple(sorted({*ran.left} - {*plainly.left})))
            yield told(f"{kind}: {path.stem}, {words[0]}", ran, partial(as_bare, plainly))


def as_bare(bare: Ran, ran: Ran) -> str:
    if ran.printed != bare.printed:
        return "prints something else"
    return "" if ran.code == bare.code else f"exit code {ran.code} and not {bare.code}"


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
