"""The command, in a process that was forked after torch was imported: what most tests of the
command line would otherwise wait for. Each run is a process of its own, as from a shell.

Run as a program, this is where the runs come from: asked over its standard input, a socket.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

_NUMBER = 8  # bytes


class Warm:
    """Where runs come from."""

    def __init__(self, paths: str) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__]
            environment = os.environ | {"PYTHONPATH": paths}
            self._process = subprocess.Popen(command, stdin=theirs, env=environment)

    def run(
        self, words: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` of `gradscope` with these words."""
        asked = pickle.dumps((words, str(cwd), dict(environment)))
        with open(os.devnull) as stdin, _kept() as stdout, _kept() as stderr:
            streams = [one.fileno() for one in (stdin, stdout, stderr)]
            socket.send_fds(self._ours, [len(asked).to_bytes(_NUMBER, "little")], streams)
            self._ours.sendall(asked)
            pid = self._answer()
            self._ours.settimeout(timeout)
            try:
                code = self._answer()
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._ours.settimeout(None)
                self._answer()
                raise
            self._ours.settimeout(None)
            said = [_all_of(stdout), _all_of(stderr)]
        return subprocess.CompletedProcess(["gradscope", *words], code, *said)

    def _answer(self) -> int:
        told = self._ours.recv(_NUMBER)
        assert told, "nobody is there to ask"
        return int.from_bytes(told, "little", signed=True)

    def end(self) -> None:
        self._ours.close()
        self._process.wait()


def _kept() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def serve(asker: socket.socket) -> NoReturn:
    """Start what is asked for, one after the other, until nobody is there to ask."""
    # `torch._dynamo` is what the first optimizer of a program imports, for a second.
    for name in ("torch._dynamo", "gradscope.cli", "gradscope.pipeline"):
        importlib.import_module(name)

    while True:
        size, streams, _, _ = socket.recv_fds(asker, _NUMBER, 3)
        if not size:
            os._exit(0)
        asked = b""
        while len(asked) < int.from_bytes(size, "little"):
            asked += asker.recv(1 << 16)
        words, cwd, environment = pickle.loads(asked)
        pid = os.fork()
        if pid == 0:
            asker.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            sys.exit(_run(words, cwd, environment))
        for stream in streams:
            os.close(stream)
        asker.sendall(pid.to_bytes(_NUMBER, "little", signed=True))
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        asker.sendall(code.to_bytes(_NUMBER, "little", signed=True))


def _run(words: list[str], cwd: str, environment: Mapping[str, str]) -> int:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["gradscope", *words]
    sys.path[0] = cwd  # as `python -m` has it
    from gradscope.__main__ import main  # only now: it sees when the command began

    return main()


if __name__ == "__main__":
    serve(socket.socket(fileno=os.dup(0)))
