"""The child's way to its parent."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

from gradscope.programs.messages import Message
from gradscope.programs.sys_modules import OwnModules
from gradscope.signals import held_back, leave


class Channel:
    """Only the process that made it speaks: workers stay silent. A run that is `repeated` ends with
    its last word: what the program does while it is unwound, it has done once."""

    def __init__(self, connection: Connection, *, repeated: bool = False) -> None:
        self.modules = OwnModules()
        self._begin(connection, repeated)

    def _begin(self, connection: Connection, repeated: bool) -> None:
        self._connection = connection
        self._repeated = repeated
        self._pid = os.getpid()
        self._closed = False

    def repeat(self, connection: Connection) -> None:
        """In a copy of the process, which repeats what comes from here on."""
        self._begin(connection, repeated=True)

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
                leave(1)  # the parent is gone, and nobody waits for this run

    def close(self, last: Message) -> None:
        """Send the last word. What happens later in the program is its own affair."""
        if self.is_open:
            self.send(last)
            self._closed = True
            if self._repeated:
                leave(0)
