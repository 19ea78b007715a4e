"""Where the program built what may turn out to be at fault: the last layer of a Sequential."""

import sys
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from gradscope.record.journal import Note
from gradscope.record.sites import Site, file_in_torch, instruction_of, note_site
from gradscope.record.stand_ins import is_elsewhere, stand_in, without_us

_CONTAINERS = ("nn/modules/container.py", "nn/modules/module.py")


class Built:
    """Told of each module that a Sequential is given."""

    def __init__(self) -> None:
        # By Sequential, the module that it was given last, by id, and where the user has done so.
        self._last: WeakKeyDictionary[nn.Module, tuple[int, Site]] = WeakKeyDictionary()

    def install(self, stack: ExitStack, thread: int) -> None:
        add: Any = nn.Module.add_module

        def add_module(one: Any, name: Any, module: Any) -> None:
            with without_us:
                add(one, name, module)
            if isinstance(one, nn.Sequential) and not is_elsewhere(thread):
                user, inner = note_site(sys._getframe(1))
                is_users = all(file_in_torch(code) in _CONTAINERS for code, _ in inner)
                self._last[one] = id(module), user if is_users else ()

        stand_in(stack, nn.Module, "add_module", add_module)

    def put_last(self, note: Note | None) -> Site:
        """Where the module whose forward has made a call was put behind all others of a Sequential;
        empty where that is not known, or it is not there."""
        frame = note.module if note is not None else None
        if frame is None or frame.outer is None:
            return ()
        known, site = self._last.get(frame.outer.module, (0, ()))
        return site if known == id(frame.module) else ()

    def is_alike(self, note: Note | None, site: Site) -> bool:
        """Whether that of another call was put there by the same line."""
        return bool(site) and instruction_of(self.put_last(note)) == instruction_of(site)
