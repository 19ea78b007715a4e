"""`gradscope check --init`: a configuration for the programs that lie in a folder, by their text
alone. Nothing of them is run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gradscope.config import FILE_NAMES, find_config
from gradscope.errors import GradscopeError
from gradscope.facts import plural
from gradscope.writing import write_whole

HEAD = "# What `gradscope check` runs; the README tells what else may stand here.\n"
# An environment's packages, and a saved step's copies, are nobody's programs.
ELSEWHERE = ("pyvenv.cfg", "step.json")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Proposal:
    """`targets` as a configuration names them; `left_out` are sentences."""

    targets: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _File:
    name: str  # relative to the folder
    tree: ast.Module

    @cached_property
    def functions(self) -> dict[str, Function]:
        """By their own names, methods too."""
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)}

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__")

    @cached_property
    def imported(self) -> list[str]:
        """The dotted names of all that it may import."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                found += [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]
        return found

    def imports(self, files: dict[str, _File]) -> Iterator[_File]:
        """The files of the folder that this one imports."""
        package = self.module.rpartition(".")[0]
        for name in self.imported:  # beside the file, else from the folder
            found = files.get(f"{package}.{name}") or files.get(name)
            if found is not None:
                yield found

    @property
    def uses_torch(self) -> bool:
        return any("torch" in name.split(".") for name in self.imported)


def propose(folder: Path) -> Proposal:
    """The scripts that run a backward pass, and the functions that do when they are called."""
    files, left_out = _read(folder)
    targets = []
    run: set[int] = set()  # functions that a script runs, by id
    for file in files.values():
        reached = _reached(file, files)
        if any(map(_calls_backward, reached)):
            targets.append(file.name)
            run.update(map(id, reached))
    for file in files.values():
        inside = [node for node in file.functions.values() if _calls_backward(node)]
        for node in inside:
            if id(node) in run or node not in file.tree.body:
                continue
            needed = _needed(node)
            if needed:
                left_out.append(
                    f"{file.name}:{node.name} takes {', '.join(needed)}: name it with its inputs"
                )
            else:
                targets.append(f"{file.name}:{node.name}")
        if not inside and file.uses_torch and file.name not in targets:
            left_out.append(
                f"{file.name} calls no backward(): a function of it that returns a loss is named "
                f"{file.name}:FUNCTION"
            )
    return Proposal(tuple(targets), tuple(left_out))


def write_proposal(folder: Path) -> list[str]:
    """Write the configuration, and tell what is in it and what is not, line by line.

    Raises GradscopeError where there is one already, or nothing to write into it.
    """
    present = find_config(folder)
    if present is not None and present.parent == folder:
        raise GradscopeError(
            f"{present.name} is there already, and is not overwritten",
            help="add to its targets: by hand; gradscope check --show-config prints them",
        )
    found = propose(folder)
    told = [f"left out: {reason}" for reason in found.left_out]
    if not found.targets:
        raise GradscopeError(
            "no program in this folder calls backward(), so nothing was written",
            help="name a function that returns the loss: gradscope check FILE.py:FUNCTION",
            detail="\n".join(told),
        )
    import yaml

    text = yaml.safe_dump({"targets": list(found.targets)}, allow_unicode=True)
    write_whole(folder / FILE_NAMES[0], HEAD + text, asked_by="--init")
    return [
        f"wrote {FILE_NAMES[0]} with {plural(len(found.targets), 'target')}:",
        *(f"  {target}" for target in found.targets),
        *told,
        "`gradscope check` runs it",
    ]


def _read(folder: Path) -> tuple[dict[str, _File], list[str]]:
    """The Python files below a folder by their modules' names, and what cannot be one of them."""
    files, left_out = {}, []
    for place, inside, names in os.walk(folder):
        here = Path(place)
        inside[:] = sorted(
            name
            for name in inside
            if not name.startswith((".", "__"))
            and not any((here / name / mark).exists() for mark in ELSEWHERE)
        )
        for name in sorted(names):
            shown = str((here / name).relative_to(folder))
            if not name.endswith(".py"):
                continue
            if name.startswith("test_") or name in ("conftest.py", "setup.py"):
                continue  # pytest's, which has `pytest --gradscope`, and an installer's
            try:
                file = _File(shown, ast.parse((here / name).read_bytes(), shown))
            except (OSError, SyntaxError, ValueError) as error:
                left_out.append(f"{shown} cannot be read: {str(error).partition(' (')[0]}")
                continue
            files[file.module] = file
    return files, left_out


def _reached(file: _File, files: dict[str, _File]) -> list[ast.AST]:
    """What a script runs: its own statements, and the functions that these mention by name, there
    or in files that it imports, and so on."""
    waiting: list[tuple[ast.AST, _File]] = [
        (node, file) for node in file.tree.body if not isinstance(node, Function | ast.ClassDef)
    ]
    reached: list[ast.AST] = []
    seen: set[int] = set()
    while waiting:
        node, home = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        reached.append(node)
        near = [home, *home.imports(files)]
        for name in _mentioned(node):
            waiting += [(one.functions[name], one) for one in near if name in one.functions]
    return reached


def _mentioned(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def _calls_backward(node: ast.AST) -> bool:
    """`loss.backward()`, `torch.autograd.grad(loss, ...)`."""
    called = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(
        isinstance(one, ast.Attribute)
        and (
            one.attr == "backward"
            or (one.attr == "grad" and "autograd" in set(_mentioned(one.value)))
        )
        for one in called
    )


def _needed(node: Function) -> list[str]:
    """The parameters that a call must give."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    free = positional[: len(positional) - len(given.defaults)]
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return [one.arg for one in (*free, *(one for one, default in named if default is None))]
