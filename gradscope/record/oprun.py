"""One op that ran, with all that is needed to look at it closely, now or later."""

import math
from itertools import takewhile
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.utils import checkpoint

from gradscope.record.events.provenance import Stain
from gradscope.record.journal import Note, Raw
from gradscope.record.schema import OpInfo
from gradscope.record.sites import ENGINE, OURS, USER, is_between, kind_of
from gradscope.record.stand_ins import outward

_CHECKPOINT = vars(checkpoint)
_REENTRANT = checkpoint.CheckpointFunction.forward.__code__
# What gives a module memory in the place of its parameters, for its user to fill.
_TO_EMPTY = next(
    (one for one in torch.nn.Module.to_empty.__code__.co_consts if isinstance(one, CodeType)), None
)


class NodeOps:
    """The ops that ran inside the autograd node that is running now.

    Their arguments are held until the node is done, since only the later ops of a node tell which
    of the tensors was its grad_output. Outputs are not held: autograd takes over a gradient
    without a copy only when nobody else holds it.
    """

    __slots__ = ("events", "made", "node", "ops", "saved", "saved_keys", "transforms", "unpacked")

    def __init__(self, node: Any = None, transforms: int = 0) -> None:
        self.node = node
        self.transforms = transforms  # of torch.func, around the pass
        self.ops: list[tuple[OpInfo, tuple[Any, ...], dict[str, Any]]] = []
        self.made: set[int] = set()
        self.events: list[Raw] = []
        self.saved: list[tuple[str, Any]] | None = None  # read early where ops are judged late
        self.saved_keys: set[int | None] = set()
        self.unpacked: list[Any] = []  # what saved-tensor hooks gave back to this node

    def takes_in(self, shape: tuple[int, ...], given: set[tuple[int, ...]]) -> bool:
        """Whether a gradient of one of these shapes, which its node knows of, may have this one:
        of a transform around the node, `vmap` puts dimensions before those."""
        return any(shape[ahead:] in given for ahead in range(min(self.transforms, len(shape)) + 1))

    def nbytes(self) -> int:
        """The size of the tensors that are held."""
        return sum(
            value.numel() * value.element_size()
            for _, args, _ in self.ops
            for value in args
            if type(value) is torch.Tensor
        )


class OpRun(NamedTuple):
    """`seq` is the sequence counter after the op where it made an autograd node, else None.
    `before` is its first operand where the op has overwritten it. `again`: inside a checkpoint's
    recomputation. `by_user`: the user's own line called the op, with nothing of a library between.
    """

    note: Note
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    seq: int | None
    before: torch.Tensor | None
    by_engine: bool
    by_user: bool
    again: bool
    running: NodeOps
    optimizing: bool
    step: int

    @property
    def info(self) -> OpInfo:
        return self.note.info

    def inputs(self) -> list[tuple[str, torch.Tensor]]:
        """The tensor arguments with their names in the schema."""
        return list(self.info.tensors(self.args, self.kwargs))

    def written(self) -> list[torch.Tensor]:
        """The tensors that the op wrote in place."""
        return self.info.written_tensors(self.args, self.kwargs)

    @property
    def factor(self) -> float:
        """By what the op multiplies all elements that it reads, as far as a single number tells."""
        match self.info.name:
            case "mean":
                return float(self.out.numel() / self.args[0].numel())
            case "mul":
                return math.prod(map(_size, self.args))
            case "div":
                return 1 / _size(self.args[1])
        return 1.0

    def numbers(self) -> list[float]:
        """The Python numbers among the arguments."""
        return [
            float(value)
            for _, value in self.info.named_arguments(self.args, self.kwargs)
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]


def _size(value: Any) -> float:
    """That of a single number; 1 where it is none, or not finite."""
    is_single = isinstance(value, torch.Tensor) and value.numel() == 1
    size = float(abs(value)) if is_single or isinstance(value, int | float) else 1.0
    return size if 0 < size < math.inf else 1.0


class StainedInput(NamedTuple):
    """An input that holds bad values whose origin is known."""

    name: str
    tensor: torch.Tensor
    stain: Stain


def flatten(out: Any) -> list[torch.Tensor]:
    """The tensors in what an op returned."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, list | tuple):
        return [tensor for item in out for tensor in flatten(item)]
    return []


def among(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether it is one of them; `in` would compare elements."""
    return any(tensor is other for other in others)


def asked_by_user(frame: FrameType | None) -> bool:
    for code, lasti in ((one.f_code, one.f_lasti) for one in outward(frame)):
        if (kind := kind_of(code)) != OURS and not is_between(code, lasti):
            return kind == USER or code is _TO_EMPTY
    return False


def checkpoint_around(frame: FrameType | None) -> FrameType | None:
    """The frame of the reentrant checkpoint that an op runs in."""
    return next((one for one in outward(frame) if one.f_code is _REENTRANT), None)


def runs_forward_again(frame: FrameType | None) -> bool:
    inner = takewhile(lambda one: kind_of(one.f_code) != ENGINE, outward(frame))
    return any(one.f_globals is _CHECKPOINT for one in inner)
