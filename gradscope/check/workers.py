"""Cases side by side, each in a process forked from this one, which has imported torch once.

A worker runs `judge`, which itself runs the user's program in a child of its own. What becomes of
one worker is never the others' affair.
"""

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from gradscope.check.cases import Case
from gradscope.dataclass import dataclass
from gradscope.facts import Ending, Report
from gradscope.signals import raise_from_now_on

TICK = 0.2  # seconds between two looks at the clock
OVERTIME = 60.0  # seconds on top of the time for the run and for trying fixes
INTERRUPT_GRACE = 0.8  # seconds that workers have after Ctrl-C, when somebody waits for the report

Judge = Callable[[Case], Report]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the check is: for whoever shows it."""

    done: int
    total: int
    running: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class _Worker:
    place: int
    case: Case
    process: BaseProcess
    connection: Connection
    ends_by: float


def run_all(
    cases: Sequence[Case],
    judge: Judge,
    *,
    jobs: int | None = None,
    on_progress: Callable[[Standing], None] | None = None,
) -> tuple[Report, ...]:
    """The report of each case, in their order, `jobs` at a time (None: one a core).

    Ctrl-C ends the check early: what is done is reported, the rest as interrupted.
    """
    raise_from_now_on()
    jobs = max(1, min(jobs or _cores(), len(cases)))
    reports: dict[int, Report] = {}
    waiting = list(enumerate(cases))[::-1]
    running: list[_Worker] = []
    started = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(*waiting.pop(), judge, max(1, _cores() // jobs)))
            if on_progress is not None:
                names = tuple(worker.case.shown for worker in running)
                spent = time.monotonic() - started
                on_progress(Standing(len(reports), len(cases), names, spent))
            _take(running, reports)
    except KeyboardInterrupt:
        for worker in running:
            if worker.process.pid is not None and worker.process.is_alive():
                with contextlib.suppress(OSError):
                    os.kill(worker.process.pid, signal.SIGINT)
        deadline = time.monotonic() + INTERRUPT_GRACE
        while running and time.monotonic() < deadline:
            _take(running, reports)
        for place, case in enumerate(cases):
            if place not in reports:
                reports[place] = case.ended(Ending("interrupted", "Ctrl-C", 130))
    finally:
        for worker in running:
            _kill(worker)
    return tuple(reports[place] for place in sorted(reports))


def _take(running: list[_Worker], reports: dict[int, Report]) -> None:
    """Wait a moment for the reports of workers, and take those that came."""
    wait([worker.connection for worker in running], TICK)
    for worker in list(running):
        report = _result(worker)
        if report is not None:
            reports[worker.place] = report
            running.remove(worker)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(place: int, case: Case, judge: Judge, threads: int) -> _Worker:
    from gradscope.programs.process import beside

    process, ours = beside(_work, case, judge, threads)
    limit = (case.config.time_limit or float("inf")) + case.config.verify_time + OVERTIME
    return _Worker(place, case, process, ours, time.monotonic() + limit)


def _work(case: Case, judge: Judge, threads: int, connection: Connection) -> None:
    """The worker's side."""
    import torch

    from gradscope.programs.process import wanted
    from gradscope.record.forking import die_with

    if (parent := multiprocessing.parent_process()) is not None and parent.pid is not None:
        die_with(parent.pid)
    with contextlib.suppress(OSError):
        # The program must neither wait for the terminal nor share its Ctrl-C: we pass that on.
        if hasattr(os, "setpgid"):
            os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # fewer may have been asked for
    try:
        report = judge(case)
    except KeyboardInterrupt:
        report = case.ended(Ending("interrupted", "Ctrl-C", 130))
    except BaseException as error:
        detail = f"{type(error).__name__}: {error}"
        report = case.ended(Ending("fault", detail, traceback=traceback.format_exc()))
    with contextlib.suppress(OSError):
        connection.send((report, wanted()))


def _result(worker: _Worker) -> Report | None:
    """The report once there is one; a worker that is gone without one is told of instead."""
    from gradscope.programs.process import preload

    try:
        if worker.connection.poll():
            report, imported = worker.connection.recv()
            preload(imported)
            worker.process.join(1.0)
            _kill(worker)
            return report  # type: ignore[no-any-return]
    except (EOFError, OSError):
        worker.process.join(1.0)
        code = worker.process.exitcode
        _kill(worker)
        killed = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
        return worker.case.ended(Ending("died", f"{killed}, and with it what was seen so far"))
    if time.monotonic() > worker.ends_by:
        _kill(worker)
        limit = f"the time limit of {worker.case.config.time_limit:g} s"
        return worker.case.ended(Ending("hung", f"no result long after {limit}"))
    return None


def _kill(worker: _Worker) -> None:
    if worker.process.is_alive():
        worker.process.kill()
    worker.process.join(1.0)
    worker.connection.close()
