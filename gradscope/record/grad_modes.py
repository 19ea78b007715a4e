"""Where the user's source switches gradients off: by a `with`, a decorator, or a call that holds
for all that follows."""

import ast
from collections.abc import Iterator
from types import CodeType

from gradscope.facts import Location
from gradscope.record.definitions import every, source_of, span, written_at
from gradscope.record.sites import Site, resolve
from gradscope.source.tree import covers, last_name

# No op is run when grad mode changes: where that is written has to be read.
_GUARDS = frozenset(
    f"torch.{module}{guard}"
    for module in ("", "autograd.", "autograd.grad_mode.")
    for guard in ("no_grad", "inference_mode", "set_grad_enabled")
)
# These set it when they are called, and not where a `with` enters them.
_SWITCHES = frozenset(
    {*(one for one in _GUARDS if one.endswith("set_grad_enabled")), "torch._C._set_grad_enabled"}
)


def guard_of(user: Site) -> Location | None:
    """The `with torch.no_grad()` (or the decorator) that is around the innermost of these frames
    that has one, else the call of `torch.set_grad_enabled` that holds from there on."""
    guards = (*(_guarding(*frame) for frame in user), *(_switch(*frame) for frame in user))
    return next(filter(None, guards), None)


def _switch(code: CodeType, lasti: int) -> Location | None:
    line = resolve(code, lasti).line
    switches = [one for one in _switches(code) if one.lineno < line]
    return span(code, switches[-1]) if switches else None


def _switches(code: CodeType) -> Iterator[ast.Call]:
    """The statements of the file that set the mode for all that follows."""
    for source, node in every(code, ast.Expr):
        match node.value:
            case ast.Call(func=function) as call if source.names.dotted(function) in _SWITCHES:
                yield call
            case ast.Call(func=ast.Attribute(ast.Call(func=guard), "__enter__")) as call:
                if source.names.dotted(guard) in _GUARDS:
                    yield call


def _guarding(code: CodeType, lasti: int) -> Location | None:
    line, found = resolve(code, lasti).line, None
    source = source_of(code.co_filename)
    for node in ast.walk(source.tree) if source else ():
        if isinstance(node, ast.With):
            items = [item.context_expr for item in node.items]
        elif isinstance(node, ast.FunctionDef):
            items = node.decorator_list
        else:
            continue
        if covers(node, line):
            for item in items:
                called = item.func if isinstance(item, ast.Call) else item
                if source is not None and source.names.dotted(called) in _GUARDS:
                    found = span(code, item)
    return found


def only_inference(code: CodeType) -> Location | None:
    """The one place of the file that turns inference mode on."""
    found = [
        span(code, one)
        for source, one in every(code, ast.Attribute)
        if source.names.dotted(one) == "torch.inference_mode"
    ]
    return found[0] if len(found) == 1 else None


def is_statement(code: CodeType, lasti: int) -> bool:
    """Whether a call stands alone: as a statement, and not in a `with` or a decorator."""
    source, node = written_at(code, lasti)
    above = source.parents.get(node) if source is not None and node is not None else None
    return isinstance(above, ast.Expr)


def switched_off_at(code: CodeType) -> Location | None:
    """The one statement of the file that switches gradients off for good."""
    found = [
        switch
        for switch in _switches(code)
        if last_name(switch.func) == "__enter__"
        or any(isinstance(one, ast.Constant) and not one.value for one in switch.args)
    ]
    return span(code, found[0]) if len(found) == 1 else None
