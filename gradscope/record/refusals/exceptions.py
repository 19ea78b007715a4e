"""An exception of autograd's: what was to be differentiated, and from where."""

from __future__ import annotations

import ast
import copy
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Location
from gradscope.record.context import RunContext
from gradscope.record.definitions import source_of, updated_at
from gradscope.record.graph import Nodes, consumers
from gradscope.record.held import alive, variables
from gradscope.record.oprun import flatten
from gradscope.record.optimizers import parameters_of
from gradscope.record.refusals.notes import Notes
from gradscope.record.sites import USER, kind_of, resolve
from gradscope.record.sizes.flow import Flow
from gradscope.record.stand_ins import links
from gradscope.source import Source
from gradscope.source.hand_updates import holder_of, written
from gradscope.source.spans import expression, statement_at
from gradscope.source.tree import parts

_CHAIN = 8  # exceptions that led to the last one
_SCALED_STEP = torch.amp.GradScaler.step.__code__
_COPIES = copy.deepcopy.__code__
_COPYING = torch.Tensor.__deepcopy__.__code__
_DIFFERENTIATING = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)


@dataclass(frozen=True, slots=True)
class Raised:
    """`frames` are the user's, innermost first, with the `places` that they had come to. `nodes`
    are those of the graph of the `roots`, `inputs` what they were to be differentiated by. `making`
    has the variables of an optimizer's functions, with it; `copied` is what `deepcopy` was at, and
    `copied_of` the module that holds it. `flow` is that of the forward that runs, or whose backward
    raised; `switch` are the frames that have switched gradients off."""

    error: BaseException
    notes: Notes
    context: RunContext
    flow: Flow | None
    frames: list[FrameType]
    places: list[Location]
    roots: list[torch.Tensor]
    inputs: list[torch.Tensor]
    nodes: Nodes
    switch: tuple[Location, ...]
    making: list[tuple[torch.optim.Optimizer, Mapping[str, Any]]]
    copied: torch.Tensor | None
    copied_of: torch.nn.Module | None

    @classmethod
    def by(
        cls, error: BaseException, notes: Notes, context: RunContext, flow: Flow | None
    ) -> Raised:
        frames: list[FrameType] = []
        places: list[Location] = []
        roots, inputs = list[torch.Tensor](), list[torch.Tensor]()
        making: list[tuple[torch.optim.Optimizer, Mapping[str, Any]]] = []
        copied: torch.Tensor | None = None
        copied_of: torch.nn.Module | None = None
        for one in links(error.__traceback__):
            frame = one.tb_frame
            if kind_of(frame.f_code) == USER:
                frames.insert(0, frame)
                places.insert(0, resolve(frame.f_code, one.tb_lasti))
            elif frame.f_code in _DIFFERENTIATING:
                given = frame.f_locals
                roots = flatten(given.get("tensors", given.get("outputs")))
                inputs = flatten(given.get("inputs"))
            elif frame.f_code is _COPYING:
                copied = frame.f_locals.get("self")
            elif frame.f_code is _COPIES:
                what = frame.f_locals.get("x")
                copied_of = what if isinstance(what, torch.nn.Module) else copied_of
            elif isinstance(maker := frame.f_locals.get("self"), torch.optim.Optimizer):
                making.append((maker, frame.f_locals))
        nodes = consumers([root.grad_fn for root in roots if root.grad_fn is not None])
        switch = notes.switches.left_off(frames[0] if frames else None)
        held = switch, making, copied, copied_of
        return cls(error, notes, context, flow, frames, places, roots, inputs, nodes, *held)

    @property
    def at(self) -> dict[str, Any]:
        """When and where, as the fields of a refusal."""
        step = self.context.step
        return {"step": step, "raised_at": self.place, "frames": tuple(self.places)}

    @property
    def frame(self) -> FrameType | None:
        return self.frames[0] if self.frames else None

    @property
    def place(self) -> Location | None:
        return self.places[0] if self.places else None

    @property
    def youngest_first(self) -> list[Any]:
        """The nodes, in the order in which backward meets them."""
        return sorted(self.nodes, key=lambda one: one._sequence_nr(), reverse=True)

    @property
    def node(self) -> ast.AST | None:
        """What the source has there: an expression, else a statement."""
        if self.source is None or self.place is None:
            return None
        here = replace(self.place, file=self.source.file)
        return expression(self.source, here) or statement_at(self.source, here)

    def text(self, node: ast.expr) -> str:
        """The source of a part of that."""
        return self.source.of(node) if self.source is not None else ""

    def name(self, tensor: torch.Tensor) -> str:
        """What the program calls a tensor there."""
        return self.context.names.name(tensor, self.frame) or ""

    @property
    def source(self) -> Source | None:
        return source_of(self.frame.f_code.co_filename) if self.frame is not None else None

    def leaves_held(self) -> Iterator[torch.Tensor]:
        """Those that require a gradient, and that an optimizer or a variable holds."""
        for optimizer in alive(torch.optim.Optimizer):
            yield from (one for one in parameters_of(optimizer) if one.requires_grad)
        yield from (one for one in self.tensors_held() if one.is_leaf and one.requires_grad)

    def tensors_held(self) -> Iterator[torch.Tensor]:
        """The variables of the frames that are tensors."""
        for frame in self.frames:
            for _, one in variables(frame.f_locals):
                if isinstance(one, torch.Tensor):
                    yield one


def chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_CHAIN):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def written_at(raised: Raised) -> tuple[str, Any]:
    """What an op in place was to write into, and its name, which the source tells: it raised before
    any mode could see it."""
    source = raised.source
    holder = holder_of(written(source, raised.node)) if source is not None else None
    return (raised.text(holder), held(holder, raised.frame)) if holder is not None else ("", None)


def gradient_read_at(raised: Raised) -> tuple[str, torch.Tensor, Location | None] | None:
    """A tensor whose gradient was read and is None, since it is no leaf that learns, with its name
    and the line that gives this name another value computed from that gradient."""
    if (frame := raised.frame) is None:
        return None
    for read in parts(raised.node, ast.Attribute):
        if read.attr != "grad":
            continue
        tensor, name = held(read.value, frame), raised.text(read.value)
        if isinstance(tensor, torch.Tensor) and not (tensor.is_leaf and tensor.requires_grad):
            return name, tensor, updated_at(frame.f_code, name)
    return None


def held(node: ast.expr, frame: FrameType | None) -> Any:
    """What `w`, `net.weight`, `batch["x"]` are in a frame, without a question that the program's
    own code would answer; None where that is not plain."""
    match node:
        case ast.Name(id=name) if frame is not None:
            return frame.f_locals.get(name, frame.f_globals.get(name))
        case ast.Attribute(value=value, attr=name):
            owner = held(value, frame)
            if isinstance(owner, tuple) and name in (fields := getattr(owner, "_fields", ())):
                return owner[fields.index(name)]
            parts = getattr(owner, "__dict__", {})
            if isinstance(owner, torch.nn.Module):
                parts = {**parts, **owner._modules, **owner._parameters}
            return parts.get(name)
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            owner = held(value, frame)
            if isinstance(owner, torch.nn.Module):
                return owner._modules.get(str(key))
            if type(owner) in (list, tuple, deque):
                return owner[key] if key in range(len(owner)) else None
            return dict.get(owner, key) if isinstance(owner, dict) else None
    return None


def refused_by_scaler(error: BaseException) -> list[Any]:
    """The optimizer that a GradScaler was asked to step with when it raised, if it has."""
    frames = (link.tb_frame for link in links(error.__traceback__))
    return [one.f_locals["optimizer"] for one in frames if one.f_code is _SCALED_STEP]


def stepping(error: BaseException) -> Any:
    """The optimizer of torch's whose own code raised in `step`, and not the program's, which it may
    call as its closure; None where none did."""
    found = None
    for link in links(error.__traceback__):
        held = link.tb_frame.f_locals.get("self")
        if kind_of(link.tb_frame.f_code) == USER:
            found = None
        elif isinstance(held, torch.optim.Optimizer):
            found = held
    return found
