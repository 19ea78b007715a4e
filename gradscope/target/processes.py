"""The processes that the program starts: what runs in them is not observed."""

from __future__ import annotations

from multiprocessing.process import BaseProcess


def watch_processes() -> list[str]:
    """The names of those that `multiprocessing` starts from here on, as they come. Not undone: this
    process runs one program."""
    started: list[str] = []
    start = BaseProcess.start

    def noted(process: BaseProcess) -> None:
        started.append(process.name)
        start(process)

    BaseProcess.start = noted  # type: ignore[method-assign,assignment]
    return started
