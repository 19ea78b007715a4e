"""Patched functions in the place of those of a program that already runs.

The code of a function is replaced, so that every reference to it runs the new one from its next
call on; of one that runs already the changed statements are. What has run for the last time cannot
be replaced: whether the new code really took the place of the old is known only at the end.
"""

import ast
import gc
import linecache
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from inspect import CO_OPTIMIZED
from traceback import walk_stack
from types import CodeType, FrameType, FunctionType
from typing import Any

from gradscope.programs.load import compiled, install
from gradscope.programs.snapshots.splices import Spliced, Unswappable
from gradscope.record.sites import moved
from gradscope.source.text import cell_of

_Key = tuple[str, int]  # the qualified name, and the how-manieth of that name
_MODULE = ("<module>", -1)


class Swapped:
    """The changed functions of this process, which runs one program: it is profiled from now on to
    its end, to see what runs. Raises Unswappable."""

    def __init__(self, patches: Mapping[str, str]) -> None:
        self._old: dict[int, CodeType] = {}  # code that has changed, by identity
        self._new: dict[int, CodeType] = {}  # what is to take its place, and has not yet run
        self._spliced: dict[int, Spliced] = {}  # what runs already, by the code in its place
        self._is_stale = False  # old code ran after its function was replaced
        gc.unfreeze()  # what was made before a fork is not found otherwise
        for path, text in patches.items():
            self._swap(os.path.realpath(path), text)
        install(patches)
        if not self._new or sys.getprofile() is not None:
            raise Unswappable
        sys.setprofile(self._note)

    @property
    def holds(self) -> bool:
        """Whether the changed functions have run, none of them as it was, and none goes on that
        had begun before."""
        own = [one.frame for one in self._spliced.values()]
        others = (frame for frame, _ in walk_stack(sys._getframe()) if frame not in own)
        return self.has_run and not any(id(frame.f_code) in self._old for frame in others)

    @property
    def has_run(self) -> bool:
        """Whether they have run, and none of them has begun again as it was."""
        ran = {place for place, one in self._spliced.items() if one.has_run}
        is_lost = any(one.is_lost for one in self._spliced.values())
        return not (self._is_stale or is_lost or self._new.keys() - ran)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._new.pop(id(frame.f_code), None)
            self._is_stale |= id(frame.f_code) in self._old

    def _swap(self, path: str, text: str) -> None:
        functions, frames = list(_functions(path)), list(_running(path))
        running = [one.__code__ for one in functions] + [one.f_code for one in frames]
        if not running:
            raise Unswappable
        name = running[0].co_filename
        before = "".join(linecache.getlines(name)).encode()
        if cell_of(name) is None:
            with open(path, "rb") as file:
                before = file.read()
        old, new = dict(_codes(compiled(before, name))), dict(_codes(compiled(text, name)))
        if old.keys() != new.keys():
            raise Unswappable
        imports, is_same = _new_imports(before, text)
        changed = {key for key, code in old.items() if _acts(code) != _acts(new[key])} - {_MODULE}
        changed |= set() if is_same else {_MODULE}
        self._new |= {id(new[key]): new[key] for key in changed}
        keys: dict[_Key, _Key] = {_place(code): key for key, code in old.items()}
        for frame in frames:
            key = keys.get(_place(frame.f_code))
            if key in changed and _acts(frame.f_code) == _acts(old[key]):
                with suppress(Unswappable):  # it may be called again
                    trees = ast.parse(before), _without(imports, text)
                    pair = map(_definition, trees, (old[key], new[key]))
                    self._spliced[id(new[key])] = Spliced(frame, *pair)
                    moved(frame.f_code, dict(_codes(compiled(trees[0], name)))[key])
        for code in running:
            for _, one in _codes(code):
                key = keys.get(_place(one))
                if key is not None and _acts(one) == _acts(new[key]):
                    moved(one, new[key])  # by the lines that the patch puts above it
        for function in functions:
            code = function.__code__
            key = keys.get(_place(code))
            inside = [inner for _, inner in _codes(code)]
            if key is not None and not changed.intersection(map(keys.get, map(_place, inside))):
                continue  # pytest rewrites what has an assert
            if key is None or _acts(code) != _acts(old[key]):
                raise Unswappable  # the file is not what runs
            if new[key].co_freevars != code.co_freevars:
                raise Unswappable
            for one in inside:
                if keys.get(_place(one)) in changed:
                    self._old[id(one)] = one
            function.__code__ = new[key]
        scopes = [one.__globals__ for one in functions] + [one.f_globals for one in frames]
        for scope in {id(one): one for one in scopes}.values():
            exec(compiled(imports, name), scope)


def _functions(path: str) -> Iterator[FunctionType]:
    """The functions of a file that exist in this process."""
    real = lru_cache(None)(os.path.realpath)  # there are 100,000 functions in some 2,000 files
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_flags & CO_OPTIMIZED:  # no module's own
            if real(one.__code__.co_filename) == path:
                yield one


def _running(path: str) -> Iterator[FrameType]:
    """The frames of a file that are running now."""
    for frame, _ in walk_stack(sys._getframe()):
        if os.path.realpath(frame.f_code.co_filename) == path:
            yield frame


def _definition(tree: ast.Module, code: CodeType) -> ast.AST:
    """The node that defines a piece of code; for a module's code, the module."""
    if code.co_qualname == _MODULE[0]:
        return tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = node.decorator_list[0] if node.decorator_list else node
            if first.lineno == code.co_firstlineno:
                return node
    raise Unswappable


def _codes(code: CodeType) -> Iterator[tuple[_Key, CodeType]]:
    """A piece of code, and that of every function inside it, in its classes and functions too."""
    count: Counter[str] = Counter()
    yield (code.co_qualname, -1), code
    todo = [code]
    while todo:
        for inner in todo.pop().co_consts:
            if not isinstance(inner, CodeType):
                continue
            if inner.co_flags & CO_OPTIMIZED:  # and not the body of a class
                yield (inner.co_qualname, count[inner.co_qualname]), inner
                count[inner.co_qualname] += 1
            todo.append(inner)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _acts(code: CodeType) -> tuple[object, ...]:
    """The part of a code object that decides what it does, without the functions inside it."""
    constants = [None if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_exceptiontable


def _new_imports(before: bytes, text: str) -> tuple[ast.Module, bool]:
    """The imports that a text has in addition, and whether it differs in no more than these and the
    bodies of functions."""
    old = [_outside(one) for one in ast.parse(before).body]
    imports: list[ast.stmt] = []
    kept = []
    for statement in ast.parse(text).body:
        outside = _outside(statement)
        if isinstance(statement, ast.Import | ast.ImportFrom) and outside not in old:
            imports.append(statement)
        else:
            kept.append(outside)
    return ast.Module(imports, []), kept == old


def _without(imports: ast.Module, text: str) -> ast.Module:
    """The text, in which these stand."""
    lines = {one.lineno for one in imports.body}
    tree = ast.parse(text)
    tree.body = [one for one in tree.body if one.lineno not in lines]
    return tree


def _outside(statement: ast.stmt) -> str:
    """A statement without the bodies of the functions in it, and without its place. Consumes it."""
    for node in ast.walk(statement):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.body = []
            case ast.Lambda():
                node.body = ast.Constant(None)
    return ast.dump(statement)
