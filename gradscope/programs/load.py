"""Bringing the user's code to life in the child process: a script, or the objects of a module; with
patched text in place of a file's, for that process and without touching the file."""

import ast
import builtins
import importlib
import importlib.util
import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gradscope.errors import GradscopeError, did_you_mean
from gradscope.programs.parse import find_spec
from gradscope.programs.targets import Reference, Script, Target


def files_of(target: Target) -> Iterator[str]:
    """The files that are asked to run, found without running anything."""
    for place in target.places:
        if place.endswith(".py") or os.sep in place:
            yield place
        elif (spec := find_spec(place, [os.getcwd(), *sys.path])) and spec.origin:
            yield spec.origin


def run_script(script: Script, patches: Mapping[str, str]) -> None:
    """Run a file as `__main__`, as `python FILE ARGUMENTS` or `python -m MODULE` would."""
    path = os.path.abspath(script.path)
    _look_first_in(_root(script, path))
    sys.argv = [script.name if Path(script.name).is_file() else path, *script.arguments]
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    if script.module:
        _put_into_package(main, script.module, path)
    # pickle looks up the program's classes there, under both names
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    text = patched(patches, path)
    code = compiled(_content(script) if text is None else text, path)
    exec(code, main.__dict__)


def _root(script: Script, path: str) -> str:
    """The folder in which the program's imports begin: of a module, the one that holds its whole
    package, unless that is installed."""
    if not script.module:
        return os.path.dirname(os.path.realpath(path))
    depth = script.module.count(".") + (os.path.basename(path) == "__main__.py")
    root = str(Path(path).parents[depth])
    return os.getcwd() if root in sys.path else root


def _put_into_package(main: ModuleType, module: str, path: str) -> None:
    """Give the main module the package and spec that relative imports and spawned workers need."""
    is_package = os.path.basename(path) == "__main__.py" and not module.endswith("__main__")
    name = f"{module}.__main__" if is_package else module
    main.__spec__ = importlib.util.spec_from_file_location(name, path)
    main.__package__ = name.rpartition(".")[0]
    if main.__package__:
        importlib.import_module(main.__package__)


def _content(script: Script) -> bytes:
    try:
        content = script.path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise GradscopeError(f"{script.name} cannot be read: {reason}") from error
    if b"\0" in content:
        raise GradscopeError(f"{script.name} is not Python source", help="name the .py file")
    return content


def evaluate(reference: Reference, names: Mapping[str, Any]) -> Any:
    """The object that a reference stands for: `names` first, then those of its file or module."""
    scope = dict(names)
    if reference.where is not None:
        module = import_place(reference.where)
        scope |= vars(module) | {"__builtins__": builtins}
        name = re.match(r"\w+", reference.expression)
        if name and name[0] not in scope and not hasattr(builtins, name[0]):
            raise _no_such_name(reference, name[0], module)
    return eval_expression(reference.expression, scope, str(reference))


def eval_expression(expression: str, scope: dict[str, Any], shown: str) -> Any:
    """A Python expression that the user gave; its mistakes are theirs, in one line."""
    try:
        return eval(expression.strip(), scope)
    except Exception as error:
        raise GradscopeError(
            f"{shown} cannot be evaluated: {type(error).__name__}: {error}",
            help="names in scope are torch, nn, F, math, inf, nan and those of the target's file",
        ) from error


def import_place(where: str) -> ModuleType:
    """The module of a dotted name or of a file; a file inside a package keeps its package."""
    if not where.endswith(".py"):
        _look_first_in(os.getcwd())
        return importlib.import_module(where)
    path = Path(where).resolve()
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    _look_first_in(str(folder))
    name = ".".join(parts)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if len(parts) > 1:
        return importlib.import_module(name)
    return _import_file(name, path)


def _import_file(name: str, path: Path) -> ModuleType:
    """Import by path, so that a file called like an installed package is still the one meant."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GradscopeError(f"{path} is not Python source", help="its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _look_first_in(folder: str) -> None:
    """As python does with a script's folder: it takes the place of gradscope's own entry."""
    if sys.path and not sys.flags.safe_path:
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)


def _no_such_name(reference: Reference, name: str, module: ModuleType) -> GradscopeError:
    public = [key for key in vars(module) if not key.startswith("_")]
    functions = [key for key in public if callable(getattr(module, key))]
    own = [key for key in functions if getattr(module, key).__module__ == module.__name__]
    help = did_you_mean(name, public) or f"it defines {', '.join(own) or 'no function'}"
    return GradscopeError(f"{reference.where} has no {name}", help=help)


def install(patches: Mapping[str, str]) -> None:
    """Make imports and tracebacks of this process see the patched text; not undone.

    Only the child process that runs one program calls this. `get_code` is overridden and not
    `get_data`, because a cached .pyc would be taken without asking for the source.
    """
    original = SourceFileLoader.get_code
    for path, text in patches.items():
        for name in {path, os.path.abspath(path), os.path.realpath(path)}:
            # Without a modification time linecache never looks at the file again.
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        text = patched(patches, path)
        return original(self, fullname) if text is None else compiled(text, path)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]


def patched(patches: Mapping[str, str], path: str | Path) -> str | None:
    """The text that stands in for a file; None where the file itself is meant."""
    for name in (str(path), os.path.abspath(path), os.path.realpath(path)):
        if name in patches:
            return patches[name]
    return None


def compiled(source: str | bytes | ast.Module, path: str | Path) -> CodeType:
    """Compiled as Python would: without the `from __future__` lines of this module."""
    code: CodeType = compile(source, str(path), "exec", dont_inherit=True)
    return code
