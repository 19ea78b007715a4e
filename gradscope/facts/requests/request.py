"""The base class of all requests."""

from typing import dataclass_transform

from gradscope.dataclass import dataclass


@dataclass_transform(frozen_default=True)
class Request:
    """A change of the program, a frozen dataclass; one without fields is said by its class."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
