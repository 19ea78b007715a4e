"""From the words of the command line or the configuration to a target. Imports no torch."""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from gradscope.config import Input
from gradscope.errors import GradscopeError, did_you_mean
from gradscope.examples import EXAMPLES
from gradscope.programs.targets import Function, Parts, Reference, Script, Target

FIRST_EXAMPLE = "gamma_mask"
# `losses.py:focal`, `package.module:Net(3)`; a lambda or a slice before the colon is no place.
_REFERENCE = re.compile(r"(?P<where>[^\s:()\[\]{}'\"]+):(?P<expression>[^:\s=].*)", re.DOTALL)


def parse_target(
    text: str, arguments: Iterable[str] = (), inputs: tuple[Input, ...] = (), folder: Path = Path()
) -> Target:
    """The target that a user named; relative paths start at `folder`."""
    path = folder / text
    arguments = tuple(arguments)
    if _is_file(path):
        return _script(path, text, arguments, inputs)
    found = _REFERENCE.fullmatch(text)
    if found is not None:
        _refuse("arguments of its own", arguments, text)
        return Function(parse_reference(text, folder), inputs)
    if text in EXAMPLES:
        _refuse("arguments of its own", arguments, text)
        _refuse("inputs", inputs, text)
        return Script(EXAMPLES[text].path, shown=text)
    module = find_module(text, folder)
    if module is not None:
        _refuse("inputs", inputs, text)
        return Script(module, arguments, shown=text, module=text)
    if path.is_dir():
        raise GradscopeError(
            f"{text} is a directory", help="name the script in it, or FILE.py:FUNCTION"
        )
    if text.endswith(".py") or os.sep in text:
        raise _missing_file(text, path)
    raise _unknown_name(text)


def _is_file(path: Path) -> bool:
    """As `Path.is_file`, which since Python 3.14 keeps to itself that a path may not be looked at,
    or is too long: raises OSError then."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except ValueError:  # a null byte
        return False
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def parse_parts(
    model: str | None,
    loss: str | None,
    batch: str | None,
    *,
    where: str | None = None,
    inputs: tuple[Input, ...] = (),
    folder: Path = Path(),
) -> Parts:
    """A model, loss and batch named separately; names without a place are looked up in `where`."""
    if model is None or batch is None:
        missing = "--model" if model is None else "--batch"
        raise GradscopeError(
            f"a model, a loss and a batch belong together, and {missing} is missing",
            help="for example --model net.py:Net --loss net.py:loss --batch net.py:batch",
        )
    return Parts(
        parse_reference(model, folder, where),
        parse_reference(batch, folder, where),
        None if loss is None else parse_reference(loss, folder, where),
        inputs,
    )


def parse_reference(text: str, folder: Path = Path(), where: str | None = None) -> Reference:
    """`FILE.py:EXPRESSION`, `package.module:EXPRESSION`, or an expression in `where`'s names."""
    found = _REFERENCE.fullmatch(text)
    if found is None or found["where"] == "lambda":
        return Reference(_place(where, folder) if where else None, text)
    return Reference(_place(found["where"], folder), found["expression"])


def find_module(name: str, folder: Path = Path()) -> Path | None:
    """The file that `python -m NAME` runs, found without importing anything: a package is
    executed by the import. None where there is no such module."""
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    # A single word is one of the folder's: else a misspelt example might be a module of Python's.
    installed = sys.path if "." in name else []
    spec = find_spec(name, [str(folder.absolute()), *installed])
    if spec is not None and (inside := spec.submodule_search_locations) is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", inside)
    is_source = spec is not None and spec.origin is not None and spec.origin.endswith(".py")
    return Path(str(spec.origin)) if spec is not None and is_source else None


def find_spec(name: str, places: Sequence[str]) -> ModuleSpec | None:
    """A module or package of a dotted name, whose parents are not imported for it."""
    inside: Sequence[str] | None = places
    spec = None
    so_far = ""
    for part in name.split("."):
        so_far = f"{so_far}.{part}" if so_far else part
        spec = PathFinder.find_spec(so_far, inside) if inside is not None else None
        if spec is None:
            return None
        inside = spec.submodule_search_locations
    return spec


def _place(where: str, folder: Path) -> str:
    if not (where.endswith(".py") or os.sep in where):
        return where
    path = folder / where
    if not path.is_file():
        raise _missing_file(where, path)
    return str(path)


def _script(path: Path, text: str, arguments: tuple[str, ...], inputs: tuple[Input, ...]) -> Script:
    if path.suffix == ".ipynb":
        raise GradscopeError(
            f"{text} is a notebook, not a Python file",
            help="watch a cell of it with %load_ext gradscope and %%gradscope, or export it: "
            f"jupyter nbconvert --to script {text}",
        )
    if path.suffix not in (".py", ".pyw", ""):
        raise GradscopeError(f"{text} is not a Python file", help="name the .py file")
    _refuse("inputs", inputs, text)
    return Script(path, arguments, shown=text)


def _refuse(what: str, given: tuple[object, ...], text: str) -> None:
    """Raises GradscopeError for arguments or inputs that this sort of target cannot take."""
    explicit = [value for value in given if not (isinstance(value, Input) and value.optional)]
    if explicit and what == "inputs":
        raise GradscopeError(
            f"{text} is a script, which takes no --input",
            help=f"name a function to be called with it: {text}:FUNCTION",
        )
    if explicit:
        raise GradscopeError(
            f"{text} takes no {what}, and got {' '.join(map(str, explicit))}",
            help="only a script has arguments after --",
        )


def _missing_file(text: str, path: Path) -> GradscopeError:
    folder = path.parent
    if not folder.is_dir():
        return GradscopeError(f"{text}: there is no folder {folder}", help="check the path")
    names = [entry.name for entry in folder.iterdir() if entry.suffix == ".py"]
    hint = did_you_mean(path.name, names, most=3, within=text.removesuffix(path.name))
    none = f"looked in {folder.resolve()}, where none is like it"
    return GradscopeError(f"there is no file {text}", help=hint or none)


def _unknown_name(text: str) -> GradscopeError:
    known = [*EXAMPLES, *(path.name for path in Path().glob("*.py"))]
    hint = did_you_mean(text, known, most=3)
    return GradscopeError(
        f"{text} is not a file, a module or a built-in example",
        help=f"{hint} a function is named as FILE.py:FUNCTION or package.module:FUNCTION, "
        "and `gradscope examples` lists the examples".lstrip(),
    )
