"""What can be run: a script, a function, or a model with its loss and a batch."""

from pathlib import Path

from gradscope.config import Input
from gradscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Script:
    """A program run as `__main__`. `shown` is the path as the user wrote it, or a name; `module` is
    the dotted name of one that is run as by `python -m`."""

    path: Path
    arguments: tuple[str, ...] = ()
    shown: str = ""
    module: str = ""

    @property
    def name(self) -> str:
        return self.shown or str(self.path)

    @property
    def places(self) -> tuple[str, ...]:
        """The files and the dotted modules that are asked to run."""
        return (str(self.path),)


@dataclass(frozen=True, slots=True)
class Reference:
    """An object of the user's: a Python expression in the names of a file or module.

    `where` is the path of a Python file, a dotted module, or None for torch's names alone.
    """

    where: str | None
    expression: str

    def __str__(self) -> str:
        return f"{self.where}:{self.expression}" if self.where else self.expression


@dataclass(frozen=True, slots=True)
class Function:
    """A function that returns the loss, and the inputs to call it with."""

    reference: Reference
    inputs: tuple[Input, ...] = ()

    @property
    def name(self) -> str:
        return str(self.reference)

    @property
    def places(self) -> tuple[str, ...]:
        return (self.reference.where,) if self.reference.where else ()


@dataclass(frozen=True, slots=True)
class Parts:
    """A model, the batch that it is given, and the loss of its output (None: the output is it)."""

    model: Reference
    batch: Reference
    loss: Reference | None = None
    inputs: tuple[Input, ...] = ()  # further names for the three expressions

    @property
    def name(self) -> str:
        return str(self.model)

    @property
    def places(self) -> tuple[str, ...]:
        parts = (self.model, self.batch, self.loss)
        return tuple(part.where for part in parts if part is not None and part.where)


@dataclass(frozen=True, slots=True)
class KeptStep:
    """A step that was kept in a folder; `files` are those of the program that lie in it."""

    folder: Path
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def places(self) -> tuple[str, ...]:
        return self.files


Target = Script | Function | Parts | KeptStep
