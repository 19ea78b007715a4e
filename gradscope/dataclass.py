"""The standard library's `dataclass`, which makes a frozen class in a quarter of the time.

For each class that one writes and compiles how it is compared, hashed, shown and kept from being
changed. There are hundreds of such classes to be made before a program runs: here they share how
they are compared, hashed and shown, and the type checker alone keeps them from being changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """As `dataclasses.dataclass`, with the same options."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if not options.pop("frozen", False):
            return dataclasses.dataclass(cls, **options)
        is_compared = options.pop("eq", True)
        made = dataclasses.dataclass(cls, eq=False, repr=False, **options)
        fields = dataclasses.fields(made)
        compared = _reader([one.name for one in fields if one.compare])
        shown = [one.name for one in fields if one.repr]

        def __eq__(self: Any, other: object) -> bool:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compared(self) == compared(other)

        def __hash__(self: Any) -> int:
            return hash(compared(self))

        def __repr__(self: Any) -> str:
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
            return f"{self.__class__.__qualname__}({values})"

        for method in (__eq__, __hash__, __repr__) if is_compared else (__repr__,):
            if vars(cls).get(method.__name__) is None:  # else the class has one of its own
                setattr(made, method.__name__, method)
        return made


def _reader(names: list[str]) -> Callable[[Any], Any]:
    """Of the values of some attributes, as one that can be compared."""
    return attrgetter(*names) if names else lambda one: ()
