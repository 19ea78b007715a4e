"""Which op, on which line of a backward, made a gradient that it returned."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.facts import FunctionCheck, Location
from gradscope.ops.traits import Trait, has
from gradscope.record.schema import read_schema
from gradscope.record.sites import resolve
from gradscope.source import Source, parsed
from gradscope.source.text import characters


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    output: Any
    first: Any  # the tensor that it reads its numbers from
    passes_on: bool  # it computes none: what computed them is to blame
    code: CodeType
    lasti: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What backward's own frame held when it returned: shapes of its tensors, its numbers."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)


class Watcher(TorchDispatchMode):
    """Notes the ops that one call of a backward makes, and where its own code asked for them."""

    def __init__(self, formula: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.code: CodeType | None = getattr(inspect.unwrap(formula), "__code__", None)
        self.ops: list[Op] = []
        self.scope = Scope()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in RecordingMode: asking would import Dynamo

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        place = self._place()
        if place is not None:
            name = func._schema.name.partition("::")[2]
            tensors = [arg for arg in args if isinstance(arg, Tensor)]
            source = tensors[1:2] if name == "copy_" else tensors[:1]
            info = read_schema(func)
            passes_on = info.view or has(info.name, Trait.COPIES) or name == "copy_"
            self.ops.append(Op(name, out, source[0] if source else None, passes_on, *place))
        return out

    def _place(self) -> tuple[CodeType, int] | None:
        """The instruction of backward's own code, also for an op inside of a helper. None for
        what was done around it."""
        frame: Any = sys._getframe(2)
        while self.code is not None and frame is not None:
            if frame.f_code is self.code:
                self._note(frame.f_locals)
                return self.code, frame.f_lasti
            frame = frame.f_back
        return None

    def _note(self, names: Mapping[str, Any]) -> None:
        shapes = {k: tuple(v.shape) for k, v in names.items() if isinstance(v, Tensor)}
        numbers = {k: float(v) for k, v in _attributes(names) if type(v) in (int, float)}
        self.scope = Scope(shapes, numbers)

    def maker(self, gradient: Any) -> Op | None:
        """The last op that computed a returned gradient's numbers; None where backward returned
        what it was given."""
        found = None
        for op in reversed(self.ops):
            if op.output is gradient or _writes_into(op, gradient):
                found = op
                if not op.passes_on:
                    break
                gradient = op.first
        return found


def _attributes(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A frame's values, and what forward left on the ctx: `ctx.scale`, `ctx.shape[1]`."""
    yield from names.items()
    for name, held in names.items():
        if isinstance(held, FunctionCtx):
            for key, value in vars(held).items():
                yield f"{name}.{key}", value
                if isinstance(value, tuple | list):
                    yield from ((f"{name}.{key}[{i}]", one) for i, one in enumerate(value))


def _writes_into(op: Op, gradient: Any) -> bool:
    """Whether an in-place op changed part of a gradient through a view of it."""
    if not (
        op.name.endswith("_") and isinstance(op.output, Tensor) and isinstance(gradient, Tensor)
    ):
        return False
    return op.output.untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr()


def blamed(
    check: FunctionCheck, cls: Any, watcher: Watcher, gradient: Any, position: int
) -> FunctionCheck:
    """The check with the returned expression, or the assignment, that computed the gradient of the
    argument at `position`; its op is empty where no op of backward made it."""
    maker = watcher.maker(gradient) if isinstance(gradient, Tensor) else None
    place = resolve(maker.code, maker.lasti) if maker else None
    widened = _widened(place, position) if place else None
    return replace(
        check,
        op=maker.name.removesuffix("_") if maker else "",
        location=widened or _returned(inspect.unwrap(cls.backward), position) or place,
        forward=_returned(inspect.unwrap(cls.forward), 0),
    )


def _widened(place: Location, position: int) -> Location | None:
    """From the op to the whole expression that a statement returns or assigns."""
    source = parsed(place.file)
    if source is None:
        return None
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.expr)
            and node.lineno == place.line
            and node.end_lineno == place.end_line
        ):
            found = source.nodes.statement(node)
            expression = _expression(found, position)
            return _span(source, expression, place) if expression else None
    return None


def _expression(found: ast.stmt, position: int) -> ast.expr | None:
    match found:
        case ast.Return(value=ast.Tuple(elts=elements)):
            return elements[position] if position < len(elements) else None
        case ast.Assign(targets=[ast.Name() | ast.Subscript()]) | ast.Return() | ast.Expr():
            return found.value
        case ast.AugAssign() | ast.AnnAssign():
            return found.value
    return None


def _returned(function: Any, position: int) -> Location | None:
    """The expression in a function's last return statement."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    place = resolve(code, 0)
    source = parsed(place.file)
    if source is None:
        return None
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and code.co_firstlineno in (
            node.lineno,
            *(decorator.lineno for decorator in node.decorator_list),
        ):
            returns = [
                part for part in ast.walk(node) if isinstance(part, ast.Return) and part.value
            ]
            if returns:
                last = max(returns, key=lambda part: part.lineno)
                expression = _expression(last, position) or last.value
                assert expression is not None
                return _span(source, expression, place)
    return None


def _span(source: Source, node: ast.expr, function: Location) -> Location:
    """Of an expression in a function, of which a place is known."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    start = characters(source.line(node.lineno), node.col_offset)
    end = characters(source.line(node.end_lineno), node.end_col_offset)
    return replace(function, line=node.lineno, col=start, end_line=node.end_lineno, end_col=end)


def named(tensors: Mapping[str, Tensor], tensor: Tensor) -> str | None:
    """The name under which a tensor's values are known."""
    for name, known in tensors.items():
        if known.shape == tensor.shape and torch.equal(known.to(tensor.dtype), tensor):
            return name
    return None
