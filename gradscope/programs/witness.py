"""Whether a signal was sent to our whole process group, as by a terminal, or to us alone."""

import subprocess
from contextlib import suppress
from typing import Any

_PATIENCE = 0.1  # seconds in which whoever was sent the same signal ends


class Witness:
    """A process in our group that does nothing. What ends it has reached the program as well: that
    would hear it twice if we passed it on. Only around a program that is in our group."""

    def __init__(self, is_wanted: bool) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_wanted = is_wanted

    def __enter__(self) -> "Witness":
        if self._is_wanted:
            # It reads from a pipe of ours, and so ends with us, whatever ends us.
            with suppress(OSError):
                self._process = subprocess.Popen(
                    ["cat"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        return self

    def __exit__(self, *failure: Any) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.kill()
            process.stdin.close()
            process.wait()

    def has_seen(self, number: int) -> bool:
        if self._process is None:
            return False
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return False
        self.__exit__()
        self.__enter__()
        return status == -number
