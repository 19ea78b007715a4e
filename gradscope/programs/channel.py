"""The child's way to its parent."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

from gradscope.programs.messages import Message
from gradscope.programs.modules import OwnModules
from gradscope.signals import held_back


class Channel:
    """Only the process that made it speaks: workers stay silent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._closed = False
        self.modules = OwnModules()

    @property
    def is_open(self) -> bool:
        return not self._closed and os.getpid() == self._pid

    def send(self, message: Message) -> None:
        if not self.is_open:
            return
        with held_back(), self.modules.found():  # half of a message would be left in the pipe
            try:
                self._connection.send(message)
            except OSError:
                os._exit(1)  # the parent is gone, and nobody waits for this run

    def close(self, last: Message) -> None:
        """Send the last word. What happens later in the program is its own affair."""
        self.send(last)
        self._closed = True
