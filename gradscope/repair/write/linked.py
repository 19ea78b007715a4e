"""The files of a program as one text: for what is made in one of them and read in another.

Their texts stand one after the other, without the imports of each other, so that a name means the
same in all of them. Edits go back to the files that they belong to.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gradscope.dataclass import dataclass
from gradscope.facts import Edit, Location
from gradscope.repair.write.culprit import Candidate, Culprit, NoTorch
from gradscope.source import Source, parsed

MOST_FILES = 50  # of a program; and of all below its folder, that are looked at
_MARKS = ("pyvenv.cfg", "conda-meta")  # of an environment
MOST_FOUND = 500
LARGEST = 300_000  # characters of the whole
_NOT_NEW = re.compile(r"[^\r\n]")


@dataclass(frozen=True)
class Linked(Culprit):
    """A culprit in the text of all files; `parts` are these, with the lines before each."""

    parts: tuple[tuple[Source, int], ...] = ()
    alone: Culprit | None = None  # in its own file, where most is written

    def torch(self, template: str) -> str:
        assert self.alone is not None
        return self.alone.torch(template)

    def at(self, location: Location | None) -> ast.expr | None:
        found = self._moved(location) if location is not None else None
        return super().at(found)

    def _moved(self, location: Location) -> Location | None:
        for part, before in self.parts:
            if part.file == location.file:
                line, end = location.line + before, location.end_line + before
                return replace(location, file=self.source.file, line=line, end_line=end)
        return None

    def apart(self, ways: Iterable[Candidate]) -> Iterator[Candidate]:
        """The candidates whose edits all mean in their own file what they mean in the whole."""
        for one in ways:
            edits = tuple(filter(None, map(self._own, one.edits)))
            if edits and len(edits) == len(one.edits):
                yield replace(one, edits=edits)

    def _own(self, edit: Edit) -> Edit | None:
        """None where its file has no such name as the edit writes."""
        part, before = next(one for one in reversed(self.parts) if one[1] < edit.line)
        known = {name.id for name in part.nodes.every(ast.Name)} | set(part.names.imported)
        text = self._spelled(edit.text, part)
        try:
            written = ast.walk(ast.parse(text.strip() or "0"))
        except SyntaxError:
            return None
        start = self.source.offset(edit.line, edit.col)
        is_attribute = self.source.text[start - 1 : start] == "."
        if not is_attribute and any(
            isinstance(one, ast.Name) and one.id not in known for one in written
        ):
            return None
        line, end = edit.line - before, edit.end_line - before
        return replace(edit, text=text, file=part.file, line=line, end_line=end)

    def _spelled(self, text: str, part: Source) -> str:
        """A text of the culprit's own file with the names that another one has for torch's."""
        if self.alone is None or part.file == self.alone.source.file:
            return text
        for alias, dotted in self.alone.names.imported.items():
            is_known = part.names.imported.get(alias) == dotted
            if dotted.startswith("torch.") and not is_known:
                text = re.sub(rf"(?<![\w.]){alias}\.", f"{dotted}.", text)
        with suppress(NoTorch):
            text = replace(self.alone, source=part).torch(text)
        return text


def linked(culprit: Culprit) -> Linked | None:
    """The culprit among all files of its program; None where it imports no other, or where the
    files are too many or do not simply import names of each other."""
    others = {culprit.source.file, *_files(culprit)}
    if isinstance(culprit, Linked) or (len(others) == 1 and not _has_neighbours(culprit)):
        return None
    root = _root(others)
    sources = _program(culprit, root, others) if root is not None else None
    if sources is None or len(sources) == 1:
        return None
    pieces: list[str] = []
    parts: list[tuple[Source, int]] = []
    for source, imports in sources:
        parts.append((source, sum(piece.count("\n") for piece in pieces)))
        pieces.append(_without(source, imports).rstrip() + "\n")
    whole = Source("", "".join(pieces))
    try:
        whole.tree  # noqa: B018 - two files may not go together
    except (SyntaxError, ValueError, RecursionError):
        return None
    made = Linked(
        culprit.finding, whole, None, culprit.search, culprit.texts, tuple(parts), culprit
    )
    node = made.at(culprit.finding.location)
    return replace(made, node=node) if node is not None else None


def _files(culprit: Culprit) -> Iterator[str]:
    """Where the values were made that led to the culprit, a few ops before it."""
    chain = culprit.finding.chain
    waiting = list(chain[0].ancestry) if chain else []
    while waiting:
        one = waiting.pop()
        if one is not None:
            waiting += one.inputs
            at = one.call.location if one.call is not None else None
            if at is not None and not at.installed:
                yield at.file


def _has_neighbours(culprit: Culprit) -> bool:
    """Whether the culprit's file imports one that lies beside it: a layer that is built there runs
    where the module is called."""
    beside = Path(culprit.source.file).parent
    heads = {dotted.split(".")[0] for dotted in culprit.names.imported.values()}
    return any((beside / f"{head}.py").is_file() for head in heads)


def _root(files: set[str]) -> Path | None:
    """The folder of a program: that of its files, and above all packages."""
    if not all(os.path.isabs(one) for one in files):
        return None if any(map(os.path.isabs, files)) else Path()
    root = Path(os.path.commonpath([os.path.dirname(one) for one in files]))
    while (root / "__init__.py").is_file():
        root = root.parent
    return root


def _below(root: Path) -> Iterator[Path]:
    """The files of Python there, without those of environments, which tell what they are."""
    for folder, inner, names in os.walk(root):
        below = ((one, Path(folder, one)) for one in inner if not one.startswith("."))
        inner[:] = [one for one, path in below if not any((path / at).exists() for at in _MARKS)]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def _program(
    culprit: Culprit, root: Path, files: set[str]
) -> list[tuple[Source, list[ast.stmt]]] | None:
    """The files that import these, and these, in the order in which they are imported; each with
    the statements that import a name of another one."""
    found: dict[str, Source] = {}  # by the dotted name of the module
    for number, path in enumerate(_below(root)):
        if number > MOST_FOUND:
            return None
        source = parsed(str(path), culprit.texts)
        if source is not None:
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = source
    imports = {name: dict(_imports(name, source, found)) for name, source in found.items()}
    above = {name: {one for one, _ in made.values()} for name, made in imports.items()}
    wanted = {name for name, source in found.items() if source.file in files}
    wanted = wanted.union(*(above[name] for name in wanted))  # a layer is built there
    while more := {name for name in found if wanted & above[name]} - wanted:
        wanted |= more
    size = sum(len(found[name].text) for name in wanted)
    if len(wanted) > MOST_FILES or size > LARGEST or not files <= {s.file for s in found.values()}:
        return None
    order: list[str] = []
    while left := wanted - set(order):
        ready = [name for name in left if not above[name] & left - {name}]
        if not ready:
            return None  # they import each other
        order += sorted(ready)
    named: dict[str, str] = {}
    for name in order:
        if any(module in wanted and not plain for module, plain in imports[name].values()):
            return None
        for alias, dotted in found[name].names.imported.items():
            if named.setdefault(alias, dotted) != dotted:
                return None
    return [
        (found[name], [one for one, (module, _) in imports[name].items() if module in wanted])
        for name in order
    ]


def _imports(
    name: str, source: Source, modules: dict[str, Source]
) -> Iterator[tuple[ast.stmt, tuple[str, bool]]]:
    """The import statements of a module with the other module that they are of, and whether they
    are of names in it, which they keep."""
    package = name if source.file.endswith("__init__.py") else name.rpartition(".")[0]
    folders = package.split(".") if package else []
    above = [".".join([*folders[:depth], ""]) for depth in range(len(folders), -1, -1)]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            bases = above[node.level - 1 : node.level] if node.level else above
            module = f"{node.module}." if node.module else ""
            is_plain = all(one.asname is None and one.name != "*" for one in node.names)
            inner = [module + one.name for one in node.names]
            found = _first(bases, [module.removesuffix(".")], modules)
            whole = _first(bases, inner, modules)
            if found or whole:
                yield node, (whole or found, is_plain and not whole)
        elif isinstance(node, ast.Import):
            whole = _first(above, [one.name for one in node.names], modules)
            if whole:
                yield node, (whole, False)


def _first(bases: list[str], names: list[str], modules: dict[str, Source]) -> str:
    """The first of these modules that there is; a script's folder is where its imports start."""
    found = (base + name for base in bases for name in names)
    return next((one.rstrip(".") for one in found if one.rstrip(".") in modules), "")


def _without(source: Source, imports: list[ast.stmt]) -> str:
    text = source.text
    future = (
        node
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    )
    for node in (*imports, *future):
        start, end = source.extent(node)
        blank = _NOT_NEW.sub(" ", text[start + len("pass") : end])
        text = f"{text[:start]}pass{blank}{text[end:]}"
    return text
