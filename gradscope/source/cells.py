"""Cells of a notebook: the name that people know one by, and the text that ran in it.

IPython compiles each cell under a name of its own, and keeps the text for `linecache` under that.
"""

import linecache
import sys
from itertools import count
from types import ModuleType
from typing import Any

_compiled_as: dict[str, str] = {}  # the name in the code objects, by the one that people know


def cell_of(path: str) -> str | None:
    """ "In [4]", of the name in a code object; None where that is of no cell."""
    number = number_of(path)
    if number is None:
        return None
    # A number is used again where a cell is run without a place in the history.
    for again in count(1):
        name = f"In [{number}]" if again == 1 else f"In [{number}] ({again})"
        other = _compiled_as.get(name, path)
        if other == path or number_of(other) is None:  # or a shell's that is gone
            _compiled_as[name] = path
            return name
    raise AssertionError


def number_of(path: str) -> int | None:
    """The number of a cell, of the name in a code object."""
    shell = _shell()
    told = shell.compile.format_code_name(path) if shell is not None else None
    return int(told[1].removeprefix("In[").removesuffix("]")) if told is not None else None


def text_of(file: str) -> str | None:
    """The text of a cell as it ran, its magics written in Python; None of any other file."""
    return "".join(linecache.getlines(_compiled_as[file])) if file in _compiled_as else None


def modules_around() -> tuple[tuple[str, str], ...]:
    """The names that cells have in common, and the modules that they stand for."""
    shell = _shell()
    known = shell.user_ns.items() if shell is not None else ()
    return tuple((name, one.__name__) for name, one in known if isinstance(one, ModuleType))


def _shell() -> Any:
    """That in which cells run, or None."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
