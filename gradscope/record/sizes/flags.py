"""`requires_grad` that the program sets where torch does not read it: Python takes any attribute of
a parameter or a module."""

import ast
import sys
from collections import defaultdict
from collections.abc import Container, Iterable
from difflib import SequenceMatcher
from types import ModuleType

from gradscope.facts import Location, UnreadFlag
from gradscope.record.definitions import source_of, span
from gradscope.record.held import holds_any
from gradscope.record.names import Names
from gradscope.record.sites import USER, kind_of_file
from gradscope.source import Source
from gradscope.source.arguments import called
from gradscope.source.spans import ancestors

_FLAG = "requires_grad"
_ALIKE = 0.85  # of the letters: `require_grad`, `required_grad`


def unread_flags(
    names: Names, trained: Container[int], files: Iterable[str]
) -> tuple[UnreadFlag, ...]:
    """Those that differ from what holds, one for each attribute and value. `files` are of the
    program, beside those of its modules."""
    found: dict[tuple[str, bool, bool], list[tuple[str, bool]]] = defaultdict(list)
    for key, leaf in names.parameters.items():
        for attribute, value in vars(leaf).items():
            if isinstance(value, bool) and value != leaf.requires_grad and _is_misspelt(attribute):
                told = names.owners[key].name, key in trained
                found[attribute, value, False].append(told)
    modules = {id(one): one for owner in names.owners.values() for _, one in owner.path}
    for key, module in modules.items():
        value, own = vars(module).get(_FLAG), list(module.parameters())
        if isinstance(value, bool) and own and all(one.requires_grad != value for one in own):
            told = names.modules[key], holds_any(module, trained)
            found[_FLAG, value, True].append(told)
    return tuple(
        UnreadFlag(
            attribute,
            value,
            of_module,
            tuple(name for name, _ in held),
            any(is_trained for _, is_trained in held),
            _written_at(attribute, files),
        )
        for (attribute, value, of_module), held in found.items()
    )


def _is_misspelt(attribute: str) -> bool:
    return SequenceMatcher(None, attribute, _FLAG).ratio() >= _ALIKE


def _written_at(attribute: str, files: Iterable[str]) -> Location | None:
    """The first assignment to an attribute of this name; one in a loop over parameters after any
    other, which may be of a module."""
    modules = (one for one in list(sys.modules.values()) if isinstance(one, ModuleType))
    own = (vars(one).get("__file__") for one in modules)
    known = {*files, *(file for file in own if isinstance(file, str))}
    found: list[tuple[bool, Location]] = []
    for file in (one for one in known if kind_of_file(one) == USER):
        if (source := source_of(file)) is not None:
            code = compile("", file, "exec")
            found += [
                (_is_of_parameters(source, node), span(code, node))
                for node in source.nodes.every(ast.Assign)
                if getattr(node.targets[0], "attr", "") == attribute
            ]
    return min(found, key=lambda pair: (pair[0], pair[1].line))[1] if found else None


def _is_of_parameters(source: Source, node: ast.Assign) -> bool:
    loops = (one for one in ancestors(source, node) if isinstance(one, ast.For))
    iterated = (one.iter for one in loops)
    return any(called(one).endswith("parameters") for one in iterated if isinstance(one, ast.Call))
