"""`gradscope check --init`: a configuration for the programs that lie in a folder, by their text
alone. Nothing of them is run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from gradscope.config import FILE_NAMES, find_config
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import plural
from gradscope.source.arguments import defaults_of
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


@dataclass(frozen=True, eq=False)
class _File:
    name: str  # relative to the folder
    tree: ast.Module

    @property
    def runs(self) -> bool:
        """Whether it does something itself, beside defining what others use."""
        defines = Function | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign
        does = (node for node in self.tree.body if not isinstance(node, defines))
        return any(isinstance(part, ast.Call) for node in does for part in ast.walk(node))

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__")

    @property
    def target(self) -> str:
        """As Python is told to run it: what imports from its own package is run as its module."""
        froms = (node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom))
        in_package = any(node.level for node in froms)
        return self.module.removesuffix(".__main__") if in_package else self.name

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
    targets: list[str] = []
    run: list[_File] = []  # by a script
    for file in files.values():
        reached = _reached(file, files)
        if file.runs and any(_calls_backward(one.tree) for one in reached):
            targets.append(file.target)
            run += reached
    for file in files.values():
        if file.uses_torch and not _calls_backward(file.tree) and file not in run:
            left_out.append(
                f"{file.name} calls no backward(): a function of it that returns a loss is named "
                f"{file.name}:FUNCTION"
            )
        for node in file.tree.body if file not in run else ():
            if not isinstance(node, Function) or not _calls_backward(node):
                continue
            needed = _needed(node)
            if needed:
                left_out.append(
                    f"{file.name}:{node.name} takes {', '.join(needed)}: name it with its inputs"
                )
            else:
                targets.append(f"{file.name}:{node.name}")
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
    remarks = [f"left out: {reason}" for reason in found.left_out]
    if not found.targets:
        raise GradscopeError(
            "no program in this folder calls backward(), so nothing was written",
            help="name a function that returns the loss: gradscope check FILE.py:FUNCTION",
            detail="\n".join(remarks),
        )
    import yaml

    text = yaml.safe_dump({"targets": list(found.targets)}, allow_unicode=True)
    write_whole(folder / FILE_NAMES[0], HEAD + text, asked_by="--init")
    return [
        f"wrote {FILE_NAMES[0]} with {plural(len(found.targets), 'target')}:",
        *(f"  {target}" for target in found.targets),
        *remarks,
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


def _reached(file: _File, files: dict[str, _File]) -> list[_File]:
    """The file, and those that it imports, and so on."""
    found = [file]
    for one in found:  # which grows meanwhile
        found += [other for other in dict.fromkeys(one.imports(files)) if other not in found]
    return found


def _calls_backward(node: ast.AST) -> bool:
    """`loss.backward()`, `torch.autograd.grad(loss, ...)`."""
    called = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    names = (ast.unparse(one) for one in called if isinstance(one, ast.Attribute))
    return any(name.endswith((".backward", "autograd.grad")) for name in names)


def _needed(node: Function) -> list[str]:
    """The parameters that a call must give."""
    spec, defaults = node.args, defaults_of(node)
    named = (one.arg for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs))
    return [name for name in named if defaults.get(name) is None]
