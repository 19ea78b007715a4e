"""The folder of a kept step: written by the process that ran it, read and checked before anything
of it is called."""

import json
import os
import platform
import shutil
import site
import sysconfig
from dataclasses import field
from pathlib import Path
from typing import Any

import torch
from rich.filesize import decimal

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import NotChecked
from gradscope.programs.step import CALLS, SOURCES, TENSORS
from gradscope.programs.step.allowed import function_of
from gradscope.programs.step.tape import STEP, Tape
from gradscope.record.sites import shown_path
from gradscope.version import __version__

SCHEMA = "gradscope-step/2"
_LARGEST = 256 * 2**20  # bytes of the calls
_TABLES = ("calls", "codes", "chains", "modules", "leaves", "optimizers", "states", "files")
_HELP = "gradscope trace --save-step DIR writes one"

Json = Any


@dataclass(frozen=True, slots=True)
class Stored:
    """What a folder holds. `tables` are as the tape wrote them, `files` where the file of each of
    their codes lies here."""

    folder: Path
    head: dict[str, Json]
    tables: dict[str, list[Json]]
    files: tuple[str, ...]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


def write(tape: Tape, folder: Path, target: str) -> None:
    """Write a tape to a folder, in the process that recorded it. Raises OSError."""
    tape.end()
    head: dict[str, Json] = {
        "schema": SCHEMA,
        "gradscope": __version__,
        "target": target,
        "step": tape.first,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "nbytes": tape.nbytes,
        "refused": _refusal(tape),
        "unkept": [[one.what, one.why] for one in tape.unkept],
    }
    tables: dict[str, Json] = {}
    if not head["refused"]:
        scopes = tape.scopes
        names = dict.fromkeys(code["file"] for code in scopes.codes)
        numbers = {name: number for number, name in enumerate(names)}
        for code in scopes.codes:
            code["file"] = numbers[code["file"]]
        users = {code["file"] for code in scopes.codes if code["user"]}
        tables = {
            "files": [_file(name, number in users) for name, number in numbers.items()],
            "codes": scopes.codes,
            "chains": scopes.chains,
            "modules": scopes.modules,
            "leaves": tape.leaves,
            "optimizers": tape.optimizers,
            "states": tape.states,
            "calls": tape.calls,
        }
        torch.save(tape.tensors, folder / TENSORS)
    (folder / CALLS).write_text(json.dumps({**head, **tables}, allow_nan=False), encoding="utf-8")


def _refusal(tape: Tape) -> str:
    if tape.full:
        return f"it has {tape.full}"
    return "" if tape.calls else "it has no call of torch's that could be kept"


def _file(name: str, is_user: bool) -> Json:
    """A file of the user's with its place in the folder; of an installed package from where its
    packages lie, which may be elsewhere on the machine that reads it."""
    path = os.path.realpath(name)
    if is_user:
        shown = shown_path(name)
        parts = [part for part in Path(shown).parts if part not in ("..", os.sep)]
        kept = str(Path(*parts)) if not os.path.isabs(shown) else os.path.basename(shown)
        return {"path": path, "shown": shown, "kept": kept}
    for root in _package_roots():
        if path.startswith(root):
            return {"package": path[len(root) :]}
    return {"package": ""}


def _package_roots() -> list[str]:
    paths = sysconfig.get_paths()
    torch_in = os.path.dirname(os.path.dirname(os.path.realpath(torch.__file__)))
    roots = [torch_in, *(paths[one] for one in ("purelib", "platlib", "stdlib"))]
    return [os.path.realpath(one) + os.sep for one in (*roots, *site.getsitepackages())]


def head_of(folder: Path) -> dict[str, Json]:
    """The content of `step.json`. Raises GradscopeError where it cannot be read as such."""
    path = folder / CALLS
    try:
        if path.stat().st_size > _LARGEST:
            raise _unfit(folder, f"{CALLS} is too large")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unfit(folder, f"{CALLS}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise _unfit(folder, f"{CALLS} does not parse") from None
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise _unfit(folder, f"{CALLS} names no schema")
    if document["schema"] != SCHEMA:
        schema = document["schema"][:40]
        raise _unfit(folder, f"its schema is {schema}, and this version reads {SCHEMA}")
    return document


def read(folder: Path, *, tensors: bool = True) -> Stored:
    """A folder's content, of which every name and number holds. Raises GradscopeError."""
    document = head_of(folder)
    try:
        tables = {name: list(document[name]) for name in _TABLES}
        _check(tables)
        files = tuple(_placed(one, folder) for one in tables["files"])
    except GradscopeError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError):
        by = str(document.get("gradscope"))[:40]
        other = "" if by == __version__ else f" (written by gradscope {by}, this is {__version__})"
        raise _unfit(folder, f"{CALLS} does not hold together{other}") from None
    held = _tensors(folder) if tensors else {}
    return Stored(folder, document, tables, files, held)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    try:
        where = None if torch.cuda.is_available() else "cpu"
        held = torch.load(folder / TENSORS, map_location=where, weights_only=True)
    except OSError as error:
        raise _unfit(folder, f"{TENSORS}: {error.strerror}") from None
    except Exception as error:  # torch has no class of its own for a file that it cannot read
        raise _unfit(folder, f"{TENSORS} is not read: {str(error).splitlines()[0][:80]}") from None
    if not isinstance(held, dict) or not all(
        isinstance(one, torch.Tensor) for one in held.values()
    ):
        raise _unfit(folder, f"{TENSORS} holds other things than tensors")
    return held


def _check(tables: dict[str, list[Json]]) -> None:
    """Numbers lead to what is there, and every function is one that may be called."""
    sites = (one["made"] for one in tables["optimizers"])
    for kind, ref, place in (link for chain in (*tables["chains"], *sites) for link in chain):
        _within(ref, 0, len(tables["modules" if kind == "module" else "codes"]))
        if kind not in ("code", "module") or type(place) is not int:
            raise ValueError(kind)
    for code in tables["codes"]:
        _within(code["file"], 0, len(tables["files"]))
        if not all(isinstance(code[one], str) for one in ("name", "qualname")):
            raise ValueError(code["name"])
        for place in code["places"]:
            _check_place(*place)
    for call in tables["calls"]:
        name = call["f"]
        if name != STEP and (not isinstance(name, str) or function_of(name) is None):
            raise GradscopeError(
                f"the saved step calls {str(name)[:60]}, which it may not call",
                help="a saved step calls torch's own functions alone, and those of its version",
            )
        _within(call["n"], 0, len(tables["chains"]))
        _within(call["s"], 0, len(tables["states"]))
        if not isinstance(call["a"], list) or not isinstance(call["k"], dict):
            raise ValueError(name)


def _within(number: Json, first: int, stop: int) -> None:
    if type(number) is not int or not first <= number < stop:
        raise ValueError(number)


def _check_place(line: Json, end: Json, col: Json, end_col: Json, name: Json) -> None:
    for one in (line, end, col, end_col):
        if one is not None and (type(one) is not int or not 0 <= one < 10**6):
            raise ValueError(one)
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(name)


def _placed(file: Json, folder: Path) -> str:
    """Where a file of a call lies here; a name in brackets where it does not."""
    if "package" in file:
        name = str(file["package"])
        found = (root + name for root in _package_roots() if name)
        return next(filter(os.path.isfile, found), f"<{name or 'package'}>")
    kept = (folder / SOURCES / str(file["kept"])).resolve()
    if not kept.is_relative_to((folder / SOURCES).resolve()):
        raise ValueError(file["kept"])
    return str(kept)


def moved(stored: Stored) -> dict[str, str]:
    """The copies of the program's files, by the names that a trace has for them."""
    placed = zip(stored.tables["files"], stored.files, strict=True)
    return {str(file["shown"]): shown_path(here) for file, here in placed if "shown" in file}


def files_in(folder: Path) -> list[str]:
    """The program's files that were copied."""
    return sorted(str(one) for one in (folder / SOURCES).rglob("*") if one.is_file())


def complete(folder: Path, head: dict[str, Json]) -> None:
    """Copy the program's files to where `step.json` says. Raises OSError."""
    for file in head["files"]:
        if "kept" in file:
            copy = folder / SOURCES / file["kept"]
            copy.parent.mkdir(parents=True, exist_ok=True)
            if os.path.isfile(file["path"]):
                shutil.copyfile(file["path"], copy)
            else:
                copy.touch()


def unkept_of(head: dict[str, Json]) -> tuple[NotChecked, ...]:
    return tuple(NotChecked(str(what), str(why)) for what, why in head.get("unkept", ()))


def size_of(folder: Path) -> str:
    """The size of all files in a folder: "3.2 MB"."""
    return decimal(sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()))


def _unfit(folder: Path, why: str) -> GradscopeError:
    return GradscopeError(f"{folder} is not a saved step: {why}", help=_HELP)
