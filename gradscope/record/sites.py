"""Where in the program an op was called: cheap to note at every op, resolved when asked for.

Noting keeps `(code, f_lasti)` of the frames that matter; `co_positions()` turns an instruction
into exact columns only when a report needs it.
"""

from __future__ import annotations

import dis
import linecache
import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any, Generic, TypeVar

import torch

from gradscope.facts import Location
from gradscope.record.between import may_stand_between, stands_between
from gradscope.source.text import cell_of

Site = tuple[tuple[CodeType, int], ...]  # innermost frame first
Listed = TypeVar("Listed")
Position = tuple[int | None, int | None, int | None, int | None]  # line, end line, columns

USER, LIBRARY, OURS, ENGINE = range(4)
_INNER = 8  # library frames kept an op
_MOST_PLACES = 1024  # whose lines are remembered
_MOST_CODES = 64  # whose instructions are: a script may have 50,000
_DEEPEST = 64  # user frames kept an op: enough for people, bounded for recursive programs
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep
_TORCH = os.path.realpath(os.path.dirname(torch.__file__)) + os.sep

# Torch's own wrappers around each call of a dispatch mode: they stand between an op and whoever
# asked for it, and asked for nothing themselves.
_WRAPPERS = tuple(
    os.path.join(_TORCH, name) for name in (f"_dynamo{os.sep}", "_compile.py", "_ops.py")
)

# Bound before anything is put around it.
_ENGINE_CODE = torch.autograd.graph._engine_run_backward.__code__
_BLOCK = re.compile(r"(async\s+)?(for|with|class)\b")
# As `id`, of which each hook for audit events is told, ours included.
_address: Callable[[object], int] = object.__hash__
# By identity: equal code objects may come from different files, and hashing one is slow. The
# code is kept, so that its identity is never another's.
_kinds: dict[int, int] = {}
_classified: list[CodeType] = []
_module_calls: set[int] = set()  # those of ours that call a module's forward, by identity too
_entries: set[int] = set()  # those of ours that call the program: what called them is not its own
_between: dict[int, dict[int, bool]] = {}  # by instruction: those that may stand between
_claimed: tuple[str, ...] = ()
_places: dict[tuple[int, int], tuple[CodeType, Location]] = {}
_moved: dict[int, tuple[CodeType, CodeType]] = {}
_named: dict[int, tuple[Any, dict[int, str]]] = {}  # the modules inside of one, by its id


@dataclass(slots=True, eq=False)
class ModuleFrame:
    """The modules whose forward was running, innermost first, as a linked list.

    `site` is where the module was called, `called_in` the identity of the frame that calls its
    forward: both are noted at the first op in there, and hold for the others.
    """

    module: Any
    outer: ModuleFrame | None
    site: tuple[Site, Site] | None = None
    called_in: int = 0


def module_path(frame: ModuleFrame | None) -> str | None:
    """The fqn of the innermost running module below the outermost one: `encoder.layers.3.attn`.

    The outermost module itself has no name of its own; its class name stands for it.
    """
    if frame is None:
        return None
    root = frame
    while root.outer is not None:
        root = root.outer
    if frame is root:
        return type(root.module).__name__
    known = _named.get(id(root.module))
    if known is None or known[0] is not root.module:
        names = {id(module): name for name, module in root.module.named_modules()}
        known = _named[id(root.module)] = (root.module, names)
    return known[1].get(id(frame.module), type(frame.module).__name__)


def forget_names() -> None:
    """The run is over: its modules are let go."""
    _named.clear()


def _library_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    roots = {*(paths[name] for name in names), *site.getsitepackages()}
    roots.update(filter(_is_installed_into, sys.path))
    return tuple(os.path.realpath(root) + os.sep for root in roots)


def _is_installed_into(folder: str) -> bool:
    """Whether packages were put there by an installer, whatever the folder is called: that of the
    user, or of another environment."""
    try:
        return folder not in ("", os.getcwd()) and any(
            name.endswith(".dist-info") for name in os.listdir(folder)
        )
    except OSError:
        return False


_LIBRARY_ROOTS = (*_library_roots(), _TORCH)


def kind_of(code: CodeType) -> int:
    """Whose code it is: the user's, an installed package's, gradscope's, or autograd's engine."""
    kind = _kinds.get(_address(code))
    if kind is None:
        kind = _kinds[_address(code)] = _classify(code)
        _classified.append(code)
        if kind == USER and may_stand_between(code):
            _between[_address(code)] = {}
    return kind


@cache
def kind_of_file(name: str) -> int:
    """Whose file it is. Code objects of two files can be equal, those of two names cannot."""
    return kind_of(compile("", name, "exec").replace(co_name=name))


def _classify(code: CodeType) -> int:
    name = code.co_filename
    if code is _ENGINE_CODE:
        return ENGINE
    if name.startswith("<") and not name.startswith("<ipython"):
        # Generated code (dataclasses, namedtuple, exec): of no file that anybody could open,
        # unless it is what the user typed.
        return USER if name in ("<string>", "<stdin>") else LIBRARY
    path = os.path.realpath(name)
    if path.startswith(_WRAPPERS):
        return OURS
    if path.startswith(_PACKAGE + os.sep):
        return USER if path.startswith(_EXAMPLES) else OURS
    return LIBRARY if path.startswith(_LIBRARY_ROOTS) and not path.startswith(_claimed) else USER


def claim(files: Iterable[str]) -> None:
    """What was asked to run is the user's, wherever it lies: each file, with the rest of its
    package or of its folder. Torch stays torch."""
    global _claimed
    _claimed = tuple(
        _home(path) for path in map(os.path.realpath, files) if not path.startswith(_TORCH)
    )
    _kinds.clear()
    _between.clear()
    _places.clear()
    kind_of_file.cache_clear()


def _home(path: str) -> str:
    folder = os.path.dirname(path)
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        path, folder = folder + os.sep, os.path.dirname(folder)
    if path.endswith(os.sep):  # the outermost package
        return path
    holds_others = any(root.startswith(folder + os.sep) for root in _LIBRARY_ROOTS)
    return path if holds_others else folder + os.sep


def calls_program(code: CodeType) -> None:
    """`code` is ours, and calls the program: frames outside of its own are not the program's."""
    kind_of(code)
    _entries.add(_address(code))


def is_entry(code: CodeType) -> bool:
    """Whether `calls_program` was told of it."""
    return _address(code) in _entries


def file_in_torch(code: CodeType) -> str:
    """`nn/functional.py` of code that torch itself was installed with, else nothing."""
    path = os.path.realpath(code.co_filename)
    return path[len(_TORCH) :].replace(os.sep, "/") if path.startswith(_TORCH) else ""


def calls_modules(code: CodeType) -> None:
    """`code` is ours, and calls the forward of the module that `note_site` is told of."""
    kind_of(code)
    _module_calls.add(_address(code))


def is_module_call(code: CodeType) -> bool:
    """Whether `calls_modules` was told of it: it stands between a module and who called that."""
    return _address(code) in _module_calls


def note_site(frame: FrameType | None, module: ModuleFrame | None = None) -> tuple[Site, Site]:
    """The user's frames and the library frames inside them, as instructions.

    Both are empty for an op that autograd's engine called: no Python line asked for it. An op
    inside a checkpoint's recomputation or a custom backward has user frames below the engine,
    and those are the answer. `module` is the running module: the frames outside of its call are
    gone through once and not at each of its ops.
    """
    user: list[tuple[CodeType, int]] = []
    inner: list[tuple[CodeType, int]] = []
    while frame is not None and len(user) < _DEEPEST:
        code = frame.f_code
        key = _address(code)
        kind = _kinds.get(key)
        if kind is None:
            kind = kind_of(code)
        if kind == USER:
            user.append((code, frame.f_lasti))
        elif kind == ENGINE:
            break
        elif kind == LIBRARY and not user and len(inner) < _INNER:
            inner.append((code, frame.f_lasti))
        elif kind == OURS and key in _entries:
            break
        elif kind == OURS and module is not None and key in _module_calls:
            if module.site is None:
                module.site = note_site(frame.f_back, module.outer)
                module.called_in = _address(frame)
            if module.called_in == _address(frame):
                return _joined(user, inner, module.site)
            module = None  # another module's call: a forward that is suspended, as generators are
        frame = frame.f_back
    return _asked(tuple(user), tuple(inner), frame)


def _joined(
    user: list[tuple[CodeType, int]], inner: list[tuple[CodeType, int]], outer: tuple[Site, Site]
) -> tuple[Site, Site]:
    """The frames inside of a module's call, and those outside."""
    if user:
        return _asked((*user, *outer[0])[:_DEEPEST], tuple(inner), None)
    return outer[0], (*inner, *outer[1])[:_INNER]


def _asked(user: Site, inner: Site, outer: FrameType | None) -> tuple[Site, Site]:
    """Those of the user's frames that stand between are as a library's, where somebody else has
    asked for the op: the next of them, or `outer`, where that is the engine."""
    if not user or _address(user[0][0]) not in _between:
        return user, inner
    at = next((at for at, one in enumerate(user) if not is_between(*one)), len(user))
    if at == len(user) and (outer is None or kind_of(outer.f_code) != ENGINE):
        return user, inner
    return user[at:], (*inner, *user[:at])[:_INNER]


def is_between(code: CodeType, lasti: int) -> bool:
    """Whether the user's code asks for nothing itself at this instruction."""
    known = _between.get(_address(code))
    if known is None:
        return False
    if lasti not in known:
        known[lasti] = stands_between(code, *positions(code)[lasti // 2])
    return known[lasti]


def called_by_engine(frame: FrameType | None) -> bool:
    """Whether autograd's engine, and no Python code in between, asked for this op."""
    while frame is not None:
        kind = kind_of(frame.f_code)
        if kind == ENGINE:
            return True
        if kind != OURS and not is_between(frame.f_code, frame.f_lasti):
            return False
        frame = frame.f_back
    return True  # an engine thread of a device has no Python frames of its own


def resolve(code: CodeType, lasti: int, module: str | None = None) -> Location:
    """The span of an instruction. Columns count characters, as ast does for ASCII lines."""
    _, stands = _moved.get(_address(code), (code, code))
    places, at = positions(stands), lasti // 2
    line, end_line, col, end_col = places[at] if 0 <= at < len(places) else (None,) * 4
    line = line or stands.co_firstlineno
    if end_line and end_line > line and (head := _head(code.co_filename, line, col or 0)):
        end_line, end_col = line, head
    return Location(
        file=shown_path(code.co_filename),
        line=line,
        col=col or 0,
        end_line=end_line or line,
        end_col=end_col or 0,
        function=code.co_qualname,
        module=module,
        installed=kind_of(code) == LIBRARY,
        cell=cell_of(code.co_filename) is not None,
    )


def moved(code: CodeType, other: CodeType) -> None:
    """`code` runs, and stands now where `other` does, which has the same instructions."""
    _moved[_address(code)] = (code, other)
    _places.clear()


def instruction_of(site: Site) -> tuple[int, int] | None:
    """The innermost of its instructions, by the identity of the code, which would be read from end
    to end to be hashed."""
    return (_address(site[0][0]), site[0][1]) if site else None


def place_of(site: Site) -> Location | None:
    """Where the innermost of its instructions stands."""
    key = instruction_of(site)
    if key is None:
        return None
    known = _places.get(key)
    if known is None:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        known = _places[key] = (site[0][0], resolve(*site[0]))
    return known[1]


def _head(file: str, line: int, col: int) -> int | None:
    """The column at which the first line of a block ends: taking the next batch of a `for` counts
    as the whole statement, with all that it repeats. None where no block begins there."""
    text = linecache.getline(file, line).rstrip()
    return len(text) if _BLOCK.match(text, col) else None


def shown_path(path: str) -> str:
    """The path as a user would write it: relative where it lies below the current folder; of a cell
    of a notebook its number."""
    if (cell := cell_of(path)) is not None:
        return cell
    try:
        return path if path.startswith("<") else _shown(path, os.getcwd() + os.sep)
    except FileNotFoundError:  # the current folder is gone
        return path


@cache
def _shown(path: str, here: str) -> str:
    full = os.path.abspath(path)
    return full[len(here) :] if full.startswith(here) else full


def user_frames(frame: FrameType | None) -> list[FrameType]:
    """The live frames of the user's code, innermost first: names are looked up in them."""
    found = []
    while (frame := user_frame(frame)) is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def user_site(frame: FrameType | None) -> Site:
    """The instruction of the innermost of them alone."""
    one = user_frame(frame)
    return ((one.f_code, one.f_lasti),) if one is not None else ()


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost of them. Asked in each step."""
    while frame is not None and (key := _address(code := frame.f_code)) not in _entries:
        if (_kinds[key] if key in _kinds else kind_of(code)) == USER:
            return frame
        frame = frame.f_back
    return None


class _OfCode(Generic[Listed]):
    """By identity: equal code objects may come from different files, and hashing one is slow. The
    code is kept, so that its identity is never another's."""

    def __init__(self, read: Callable[[CodeType], Sequence[Listed]]) -> None:
        self._read = read
        self._known: dict[int, tuple[CodeType, Sequence[Listed]]] = {}

    def __call__(self, code: CodeType) -> Sequence[Listed]:
        known = self._known.get(_address(code))
        if known is None:
            while len(self._known) >= _MOST_CODES:
                del self._known[next(iter(self._known))]
            known = self._known[_address(code)] = (code, self._read(code))
        return known[1]


instructions: _OfCode[dis.Instruction] = _OfCode(lambda code: tuple(dis.get_instructions(code)))
positions: _OfCode[Position] = _OfCode(lambda code: tuple(code.co_positions()))
