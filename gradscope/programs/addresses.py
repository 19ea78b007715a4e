"""Where a program connects to, and whether it listens there itself."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any


class Addresses:
    """Of one run, which begins now."""

    def __init__(self) -> None:
        self.bound: list[socket.socket] = []
        self._names: dict[tuple[int, object], str] = {}  # by the thread that asked, and the port
        self._began = time.time()

    def note(self, host: Any, port: Any) -> None:
        """A name was looked up: who connects next means that one."""
        number = int(port) if isinstance(port, str | bytes) and port.isdigit() else port
        self._names[threading.get_ident(), number] = _text(host)

    def is_ours(self, sock: socket.socket, address: Any) -> bool:
        """Whether one of the program's own threads or processes listens there. A forked process
        that binds later is known by its socket file, which is younger than the run."""
        if sock.family == getattr(socket, "AF_UNIX", None):
            with suppress(OSError, ValueError):
                return os.stat(address).st_ctime >= self._began
            return any(_bound_to(one) == address for one in self.bound)
        if not _is_ip(sock):
            return True  # netlink and the like: of this machine
        return any(_listens(one, address) for one in self.bound if _is_ip(one))

    def shown(self, sock: socket.socket, address: Any) -> str:
        """ "localhost:80"."""
        if not _is_ip(sock):
            return _text(address)
        host = self._names.get((threading.get_ident(), address[1])) or _text(address[0])
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def _is_ip(sock: socket.socket) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6)


def _bound_to(sock: socket.socket) -> Any:
    with suppress(OSError):
        return sock.getsockname()
    return None


def _listens(sock: socket.socket, address: Any) -> bool:
    own = _bound_to(sock)
    return own is not None and own[1] == address[1] and own[0] in (address[0], "0.0.0.0", "::")


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes) else str(value)
