"""Where the program built what may turn out to be at fault: the last layer of a Sequential, and a
parameter of zeros."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count, pairwise
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from gradscope.facts import Location, Normed, Zeroed
from gradscope.record.definitions import given_at, kept_from, names_at, span, written_at
from gradscope.record.events.provenance import storage_key
from gradscope.record.held import link_to
from gradscope.record.journal import Note
from gradscope.record.names import Names, Path
from gradscope.record.sites import (
    Site,
    file_in_torch,
    instruction_of,
    note_site,
    resolve,
    user_frames,
)
from gradscope.record.stand_ins import around
from gradscope.source import Source
from gradscope.source.arguments import called
from gradscope.source.spans import ancestors

# Of torch's own, what stands between the user and a module or a parameter that is made.
_BETWEEN = ("nn/modules/container.py", "nn/modules/module.py", "nn/init.py")
_NORMS = ("nn/utils/parametrizations.py", "nn/utils/weight_norm.py")
_FRAMES = 8
_APPLY: Any = nn.Module.apply.__code__
_Sites = tuple[Site, Site]  # the user's frames, and those of libraries inside them


@dataclass(frozen=True, slots=True)
class _Filled:
    """Of a parameter: from where a module was `given` it, and from where it was filled with 0
    (None: it was not), the last of these as the `number`th of all. By id, `own` is the module of
    the method that fills it, and `calls` are those that the calls around that were given."""

    given: _Sites
    number: int
    zeroed: _Sites | None = None
    own: int = 0
    calls: tuple[int, ...] = ()
    before: "_Filled | None" = None  # another one that had the same memory


class Built:
    """Told of each module that a Sequential is given, of each parameter of a module, and of what is
    filled with 0."""

    def __init__(self) -> None:
        # By id of a Sequential, that of the module that it was given last, and from where.
        self._last: dict[int, tuple[int, _Sites]] = {}
        self._filled: dict[int, _Filled] = {}  # by id
        self._ids: dict[int | None, int] = {}  # by memory, as `weight.data` shares it
        self._drawn: dict[int, _Sites] = {}  # by memory, where it was last filled at random
        self._number = count()

    def install(self, stack: ExitStack, thread: int) -> None:
        around(stack, thread, nn.Module, "add_module", after=self._note_added)
        # No op is seen of a model that is changed after the steps that are looked at.
        for name in ("zeros_", "constant_"):
            around(stack, thread, nn.init, name, after=self._note_filled)
        for name in ("normal_", "uniform_", "trunc_normal_"):
            around(stack, thread, nn.init, name, after=self._note_drawn)

    def _note_added(self, frame: FrameType, _: None, one: Any, name: Any, module: Any) -> None:
        if isinstance(one, nn.Sequential):
            self._last[id(one)] = id(module), note_site(frame)

    def _note_filled(self, frame: FrameType, _: Any, tensor: Any, *val: Any, **named: Any) -> None:
        if all(map(is_number_zero, (*val, *named.values()))):
            self.note_zeroed(tensor, frame)

    def _note_drawn(self, frame: FrameType, _: Any, tensor: Any, *args: Any, **named: Any) -> None:
        if (memory := _memory(tensor)) is not None:
            self._drawn[memory] = note_site(frame)

    def filled_at(self, parameter: torch.Tensor) -> Location | None:
        """Where the user has drawn its numbers, as far as that is known."""
        known = self._filled.get(id(parameter))
        drawn = _of_user(self._drawn.get(_memory(parameter) or 0, ((), ())))
        if drawn:
            return resolve(*drawn[0])
        site = _of_user(known.given) if known is not None and known.zeroed is None else ()
        return given_at(*site[0]) if site else None

    def note_given(self, frame: FrameType, _: None, one: Any, name: str, param: Any) -> None:
        """A module was given a parameter, below `frame`."""
        if type(param) is nn.Parameter:
            memory = _memory(param)
            before = self._filled.get(self._ids.get(memory, 0))
            before = replace(before, before=None) if before is not None else None
            self._filled[id(param)] = _Filled(note_site(frame), next(self._number), before=before)
            if memory is not None:
                self._ids[memory] = id(param)

    def note_zeroed(self, tensor: Any, frame: FrameType) -> None:
        """A tensor was filled with 0."""
        key = id(tensor) if id(tensor) in self._filled else self._ids.get(_memory(tensor), 0)
        known = self._filled.get(key)
        if known is not None:
            site, number = note_site(frame), next(self._number)
            frames = user_frames(frame)
            while frames and site[0] and frames[0].f_code is not site[0][0][0]:
                del frames[0]
            own = _module_of(frames[0]) if frames else 0
            calls = tuple(_given_to(frames[:_FRAMES], key))
            self._filled[key] = replace(known, number=number, zeroed=site, own=own, calls=calls)

    def zeroed(self, parameter: torch.Tensor | None, names: Names) -> Zeroed | None:
        """Of a parameter that is 0 everywhere; None where it is not known who has made it so."""
        known = self._filled.get(id(parameter))
        site = _of_user(known.zeroed or known.given) if known is not None else ()
        if known is None or not site:
            return None
        later = known.zeroed is not None
        place = resolve(*site[0]) if later else given_at(*site[0])
        frames = (place, *(resolve(*one) for one in site[1:_FRAMES]))
        drawn, owner = not _of_user(known.given), names.owners.get(id(parameter))
        found = Zeroed(frames, known.number, drawn, later)
        links = _links(owner.path) if owner is not None else ()
        if owner is None or not links:
            return found
        depths = {
            id(one): at
            for at, (_, one) in enumerate(owner.path, 1)
            if names.parameters.keys() - {id(each) for each in one.parameters()}
        }
        given = tuple(_dead(known.calls, depths, owner.path))
        root = links[0] if 1 in depths.values() else ""
        return replace(found, path=(root, *links[1:]), own=depths.get(known.own, 0), given=given)

    def normed(self, weight: torch.Tensor) -> Normed | None:
        """Of a parameter of zeros that `weight_norm` has made of a weight; None where it is not
        known who has made that 0."""
        known = self._filled.get(id(weight))
        user, inner = known.given if known is not None else ((), ())
        files = {file_in_torch(code) for code, _ in inner[-2:]}  # one warns of the older form
        if known is None or not user or not files.intersection(_NORMS):
            return None
        first = known if known.zeroed is not None else known.before
        site = _of_user(first.zeroed or first.given) if first is not None else ()
        if first is None or not site:
            return None
        zeroed = resolve(*site[0]) if first.zeroed is not None else given_at(*site[0])
        # Where helpers hand on what they are given, the function that both was done for.
        _, kept = kept_from(user, ())
        handed_on = user[: len(user) - len(kept) + 1]
        both = [(one, other) for one in handed_on for other in site if one[0] is other[0]]
        place, beside = (resolve(*one) for one in (both or [(user[0], site[0])])[0])
        own = known.zeroed is not None and any(map(_is_direction, names_at(site[:1])))
        return Normed(place, resolve(*user[0]), zeroed, beside, own)

    def put_last(self, note: Note | None) -> Site:
        """Where the module whose forward has made a call was put behind all others of a Sequential;
        empty where that is not known, or it is not there."""
        return _of_user(self._put(note))

    def is_alike(self, note: Note | None, site: Site) -> bool:
        """Whether that of another call was put there by the same line."""
        return bool(site) and instruction_of(self._put(note)[0]) == instruction_of(site)

    def _put(self, note: Note | None) -> _Sites:
        frame = note.module if note is not None else None
        if frame is None or frame.outer is None:
            return (), ()
        known, sites = self._last.get(id(frame.outer.module), (0, ((), ())))
        return sites if known == id(frame.module) else ((), ())


def is_number_zero(number: Any) -> bool:
    return type(number) in (int, float) and not number


def _given_to(frames: Sequence[FrameType], parameter: int) -> Iterator[int]:
    """By id, the modules that the calls behind the innermost frame were given, as an argument or by
    `apply`, in which the parameter is."""
    for one, caller in pairwise(frames):
        found, between = _argument(one, parameter), one.f_back
        while between is not None and between is not caller:
            if between.f_code is _APPLY:
                found = id(between.f_locals["self"])
            between = between.f_back
        if not found:
            return
        yield found


def _argument(frame: FrameType, parameter: int) -> int:
    """What a function was given to work on: what a class is made of is its own, and a method has
    its own module in any case."""
    code, own = frame.f_code, _module_of(frame)
    for name in code.co_varnames[: code.co_argcount] if code.co_name != "__init__" else ():
        value: Any = frame.f_locals.get(name)
        if issubclass(type(value), nn.Module) and id(value) != own:
            if any(id(one) == parameter for one in value.parameters()):
                return id(value)
    return 0


def _module_of(frame: FrameType) -> int:
    """By id, the module of which a method runs there."""
    code = frame.f_code
    value = frame.f_locals.get(next(iter(code.co_varnames), ""))
    known = (vars(kind).get(code.co_name) for kind in type(value).__mro__)
    is_its = any(getattr(method, "__code__", None) is code for method in known)
    return id(value) if is_its and issubclass(type(value), nn.Module) else 0


def _links(path: Path) -> tuple[str, ...]:
    """What leads from the name of a model on to one of its layers; empty where a part of that has
    no text of its own."""
    links = [path[0][0]]
    for (_, above), (key, one) in pairwise(path):
        listed: Any = above if isinstance(above, nn.Sequential | nn.ModuleList) else ()
        is_last = len(listed) > 1 and listed[-1] is one
        links.append("[-1]" if is_last else link_to(above, key))
    return tuple(links) if all(links) else ()


def _dead(calls: Sequence[int], depths: Mapping[int, int], path: Path) -> Iterator[int]:
    """How far down the path these are, up to the first with a weight that is not 0."""
    for depth in (depths.get(call, 0) for call in calls):
        inside = path[depth - 1][1].parameters() if depth else ()
        if not depth or any(one.dim() > 1 and bool(one.any()) for one in inside):
            return
        yield depth


def _of_user(sites: _Sites) -> Site:
    """Where the user has asked for it; empty where a library has. Asked of few: it reads paths."""
    user, inner = sites
    return user if all(file_in_torch(code) in _BETWEEN for code, _ in inner) else ()


def _is_direction(name: str) -> bool:
    """Whether `weight_norm`, in either of its forms, calls a weight so that it has taken apart."""
    return name == "original1" or name.endswith("_v")


def _memory(tensor: Any) -> int | None:
    with torch._C.DisableTorchFunction():
        return storage_key(tensor) if type(tensor) in (torch.Tensor, nn.Parameter) else None


_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)


def last_layer(code: CodeType, lasti: int) -> Location | None:
    """Where the last of the layers is written that a call gives a Sequential: an argument, or what
    a list got last that is unpacked there; the call itself where that is a turn of a loop, and
    where it appends the layer."""
    source, call = written_at(code, lasti)
    if source is None or not isinstance(call, ast.Call) or not call.args:
        return None
    last = call.args[-1]
    if isinstance(source.parents[call], ast.Expr) and called(call) != "__init__":
        last = call
    elif isinstance(last, ast.Starred):
        last = _last_in(source, last.value, call) or call
    return span(code, last)


def _last_in(source: Source, values: ast.expr, call: ast.Call) -> ast.expr | None:
    """The last item of a list, as it was when a call took it, or the call that appended it."""
    if isinstance(values, ast.Name):
        name, scope = values.id, source.nodes.owner(values)
        uses = (*(one.statement for one in scope.bindings[name]), *scope.reads[name])
        earlier = [one for one in map(source.nodes.statement, uses) if one.lineno < call.lineno]
        last = max(earlier, key=lambda one: one.lineno, default=None)
        around = [one for one in ancestors(source, last) if isinstance(one, _LOOPS)] if last else []
        if any(one not in ancestors(source, call) for one in around):
            return None
        match last:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append")) as made):
                return made
            case ast.Assign(value=given) | ast.AugAssign(op=ast.Add(), value=given):
                values = given
    return values.elts[-1] if isinstance(values, ast.List) and values.elts else None
