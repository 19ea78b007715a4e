"""The child's way to its parent, and what it tells while the program runs."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from gradscope.dataclass import dataclass
from gradscope.facts import Trace
from gradscope.signals import held_back, leave


@dataclass(frozen=True, slots=True)
class Progress:
    steps: int
    ops: int


@dataclass(frozen=True, slots=True)
class Final:
    """The facts of the whole run. `imported` are the slow parts of torch that it needed.
    `snapshots` are the steps from which it can be repeated, newest first."""

    trace: Trace
    imported: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()


class ChildFault(Exception):
    """gradscope's own code failed in the child; the text is its traceback."""

    @property
    def last_line(self) -> str:
        """The exception itself."""
        return str(self).strip().splitlines()[-1]


class NoAnswer(Exception):
    """From a snapshot it cannot be told: the copy has died, or took too long, or the patch changes
    what was over by then."""


# A bare trace holds the facts so far, in case that nothing comes after them. What is told as an
# exception, the parent raises.
Message = Progress | Trace | Final | Exception


class OwnModules:
    """Those that were there before the program ran, which may throw them out of `sys.modules`."""

    def __init__(self) -> None:
        self._table = sys.modules  # that of the interpreter, whatever the program sets there
        self._ours = dict(sys.modules)

    @contextmanager
    def found(self) -> Iterator[None]:
        """What we import or pickle meanwhile is found; afterwards all is as the program left it."""
        theirs = sys.modules
        gone = [name for name, one in self._ours.items() if self._table.get(name) is not one]
        replaced = {name: self._table[name] for name in gone if name in self._table}
        sys.modules = self._table
        for name in gone:
            self._table[name] = self._ours[name]
        try:
            yield
        finally:
            for name in gone:
                del self._table[name]
            self._table.update(replaced)
            sys.modules = theirs


class Channel:
    """Only the process that made it sends messages; processes forked from it do not. A `repeated`
    run ends with its last message: what the program does while it unwinds, the first run did."""

    def __init__(self, connection: Connection, *, repeated: bool = False) -> None:
        self.modules = OwnModules()
        self._begin(connection, repeated)

    def _begin(self, connection: Connection, repeated: bool) -> None:
        self._connection = connection
        self._repeated = repeated
        self._pid = os.getpid()
        self._closed = False
        self._pipe = os.fstat(connection.fileno())

    def repeat(self, connection: Connection) -> None:
        """Called in a copy of the process, which repeats the program from here on."""
        self._begin(connection, repeated=True)

    @property
    def is_open(self) -> bool:
        if self._closed or os.getpid() != self._pid:
            return False
        if not self._is_there():
            if self._repeated:
                leave(0)  # nobody would hear of it
            self._closed = True
        return not self._closed

    def _is_there(self) -> bool:
        """A program that closes all its files, as daemons do, closes this one too, and may have got
        its number for one of its own."""
        try:
            return os.path.samestat(os.fstat(self._connection.fileno()), self._pipe)
        except OSError:
            return False

    def send(self, message: Message) -> None:
        if not self.is_open:
            return
        with held_back(), self.modules.found():  # half of a message would be left in the pipe
            try:
                self._connection.send(message)
            except OSError:
                leave(1)  # the parent is gone, and nobody waits for this run

    def close(self, last: Message, then: Callable[[], None] = lambda: None) -> None:
        """Send the last word, and do what is left to do `then`. What happens later in the program
        is its own affair."""
        if self.is_open:
            self.send(last)
            self._closed = True
            then()
            if self._repeated:
                leave(0)
