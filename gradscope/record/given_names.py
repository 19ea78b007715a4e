"""The names of what `functional_call` is given, which torch looks up in the module: one that the
module does not have changes nothing, and raises nothing."""

import ast
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any, TypeGuard

import torch
from torch import nn

from gradscope.facts import Location, UnknownNames
from gradscope.record.context import RunContext
from gradscope.record.definitions import body_of, function_of, span, written_at
from gradscope.record.held import parts_of, variables
from gradscope.record.refusals.exceptions import held
from gradscope.record.sites import file_in_torch, instruction_of, place_of, user_frames, user_site
from gradscope.record.stand_ins import is_elsewhere, stand_in, without_us
from gradscope.record.tracing import unobserved
from gradscope.source import Source
from gradscope.source.arguments import argument, called
from gradscope.source.spans import ancestors
from gradscope.source.tree import last_name, parts

_MOST = 16  # places
_MANY = 1024  # in a list that is looked through
_CALLS = 64  # of each that are looked at
_GIVE_NAMES = ("named_parameters", "named_buffers", "state_dict")
_ASK = ("getattr", "hasattr")


class GivenNames:
    """Told of each `functional_call` before it runs."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._found: dict[object, UnknownNames] = {}  # by instruction
        self._calls = Counter[object]()  # likewise

    def install(self, stack: ExitStack, thread: int) -> None:
        stateless: Any = torch.nn.utils.stateless  # what all ways to call it lead to
        original = stateless._functional_call

        def _functional_call(
            module: Any, parameters_and_buffers: Any, *args: Any, **kwargs: Any
        ) -> Any:
            # torch compares the names itself where it is to be strict.
            if not (is_elsewhere(thread) or self._context.is_blind or kwargs.get("strict")):
                with unobserved():
                    told = module, parameters_and_buffers, sys._getframe(1)
                    self._context.shielded("functional_call", self._note, *told)
            with without_us:
                return original(module, parameters_and_buffers, *args, **kwargs)

        stand_in(stack, stateless, "_functional_call", _functional_call)

    def facts(self) -> tuple[UnknownNames, ...]:
        return tuple(self._found.values())

    def _note(self, module: Any, given: Any, frame: FrameType) -> None:
        if not (isinstance(module, nn.Module) and isinstance(given, dict)):
            return  # torch raises
        site = user_site(frame)
        key = instruction_of(site)
        self._calls[key] += 1
        if key is None or key in self._found or self._calls[key] > _CALLS:
            return
        unknown = [one for one in given if isinstance(one, str) and _is_unknown(module, one)]
        if not unknown or len(self._found) >= _MOST:
            return
        own = dict(module.named_parameters(remove_duplicate=False))
        replaced = {id(own[one]) for one in given if one in own}
        left = [name for name, one in own.items() if id(one) not in replaced]
        # Where all of its own are replaced, the others are for somebody else.
        if not left or any(_is_read(module, one) for one in unknown):
            return
        place, prefix = _made_at(frame, module, {*unknown}, _prefixes(module, given, unknown))
        self._found[key] = UnknownNames(
            self._context.names.called(module),
            tuple(unknown),
            len(given),
            tuple(left),
            prefix,
            self._context.step,
            place_of(site),
            place,
        )


def _is_unknown(module: nn.Module, name: str) -> bool:
    """Whether torch would set an attribute that is not there. Asked without running anything: a
    property may compute something new each time. Of a module inside that is not there it raises."""
    *path, attribute = name.split(".")
    for part in path:
        inner = module._modules.get(part)
        if inner is None:
            return False
        module = inner
    kind = type(module)
    own: list[Any] = [module._parameters, module._buffers, module._modules, vars(module)]
    is_there = any(attribute in one for one in (*own, *map(vars, kind.__mro__)))
    return not is_there and kind.__getattr__ is nn.Module.__getattr__


def _is_read(module: nn.Module, name: str) -> bool:
    """Whether code of the modules, or a hook, reads an attribute that is there only while it is
    given."""
    path, _, attribute = name.rpartition(".")
    holder = module.get_submodule(path)
    hooks = *holder._forward_hooks.values(), *holder._forward_pre_hooks.values()
    for hook in (*hooks, vars(holder).get("forward")):
        code: Any = getattr(hook, "__code__", None)
        if code is not None and attribute in (*code.co_names, *code.co_consts):
            return True
    for kind in {one for each in module.modules() for one in type(each).__mro__}:
        for function in vars(kind).values():
            code = getattr(function, "__code__", None)
            body = function_of(code) if code is not None and not file_in_torch(code) else None
            if body is not None:
                own = [one.arg for one in body.args.args[:1]] if isinstance(holder, kind) else []
                if _reads(body, attribute, {*own, path.rpartition(".")[2]} - {""}):
                    return True
    return False


def _reads(function: ast.FunctionDef, attribute: str, holders: Container[str]) -> bool:
    """Whether it reads the attribute of what has one of these names, or asks for it by its name."""
    read = (one for one in parts(function, ast.Attribute) if one.attr == attribute)
    asked = (argument(one, "", 1) for one in parts(function, ast.Call) if called(one) in _ASK)
    return any(last_name(one.value) in holders for one in read) or any(
        isinstance(one, ast.Constant) and one.value == attribute for one in asked
    )


def _prefixes(module: nn.Module, given: Mapping[str, Any], unknown: Iterable[str]) -> Sequence[str]:
    """The modules inside that have all of these names, for tensors of these shapes; those alone
    whose own tensors they are, if any."""
    own = dict[str, torch.Tensor](module.named_parameters(remove_duplicate=False))
    own |= module.named_buffers(remove_duplicate=False)
    pairs = {
        path: [(own.get(f"{path}.{name}"), given[name]) for name in unknown]
        for path, _ in module.named_modules()
        if path
    }
    fits = {path: both for path, both in pairs.items() if all(_alike(*one) for one in both)}
    same = [path for path, both in fits.items() if any(one is other for one, other in both)]
    return same or [*fits]


def _alike(own: Any, given: Any) -> bool:
    return own is not None and own.shape == getattr(given, "shape", None)


def _made_at(
    frame: FrameType, module: nn.Module, unknown: set[str], prefixes: Sequence[str]
) -> tuple[Location | None, str]:
    """Where the names are made, as far as the frames of the call and what they hold show it, and
    the one prefix that they lack: that of the module inside which is asked for them there, or the
    only one. Empty where nothing tells."""
    inside = {id(module.get_submodule(path)): path for path in prefixes}
    found: list[Location] = []
    for one in user_frames(frame):
        for node in _making(one, unknown):
            asked = held(node.func.value, one) if _gives_names(node) else None
            if id(asked) in inside:
                return span(one.f_code, node), inside[id(asked)]
            if asked is not module:
                found.append(span(one.f_code, node))
    return next(iter(found), None), prefixes[0] if len(prefixes) == 1 else ""


def _making(frame: FrameType, unknown: set[str]) -> Iterator[ast.expr]:
    """What may make these names, in what a frame gives the call, and in what it gives its variables
    and the attributes of theirs that hold them."""
    code = frame.f_code
    source, call = written_at(code, frame.f_lasti)
    if source is None:
        return
    yield from _makers(source, call, unknown, 0)
    body, local = body_of(code), variables(frame.f_locals)
    own = {name for name, value in local if _has(value, unknown)}
    attributes = {
        text.rpartition(".")[2]
        for name, value in local
        if not isinstance(value, dict | list | tuple)
        for text, part in parts_of(name, value)
        if _has(part, unknown)
    }
    for made in source.nodes.every(ast.Assign):
        written = {last_name(part) for one in made.targets for part in parts(one, ast.expr)}
        is_own = source.nodes.function(made) is body
        if attributes & written or (is_own and own & written):
            around = (one.iter for one in ancestors(source, made) if isinstance(one, ast.For))
            for node in (made.value, *around):
                yield from _makers(source, node, unknown, 1)


def _makers(
    source: Source, node: ast.AST | None, unknown: set[str], depth: int
) -> Iterator[ast.expr]:
    """In an expression, and so deep in the functions that it calls."""
    for one in parts(node, ast.expr):
        if _gives_names(one) or (isinstance(one, ast.Dict) and _keys(one) & unknown):
            yield one
        elif isinstance(one, ast.Call) and depth:
            functions = source.nodes.every(ast.FunctionDef)
            named = [function for function in functions if function.name == called(one)]
            if len(named) == 1:
                yield from _makers(source, named[0], unknown, depth - 1)


def _gives_names(node: ast.expr) -> TypeGuard[Any]:
    """Whether it asks a module for names, and for none with a prefix."""
    if not isinstance(node, ast.Call) or argument(node, "prefix") is not None:
        return False
    return isinstance(node.func, ast.Attribute) and node.func.attr in _GIVE_NAMES


def _keys(node: ast.Dict) -> set[Any]:
    return {one.value for one in node.keys if isinstance(one, ast.Constant)}


def _has(value: Any, unknown: set[str], depth: int = 1) -> bool:
    """Whether names are among the keys of a dict, or in a list, or of a dict in that."""
    if isinstance(value, list | tuple) and len(value) < _MANY and depth:
        found = ({one} & unknown if type(one) is str else _has(one, unknown, 0) for one in value)
        return any(found)
    return isinstance(value, dict) and any(dict.__contains__(value, one) for one in unknown)
