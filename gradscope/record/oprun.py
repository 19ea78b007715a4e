"""One op that ran, with all that is needed to look at it closely, now or later."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from gradscope.record.events.provenance import Stain
from gradscope.record.schema import OpInfo
from gradscope.record.spot import Spot


class OpRun(NamedTuple):
    """`seq` is the sequence counter after the op where it made an autograd node, else None.
    `before` is its first operand where the op has overwritten it."""

    info: OpInfo
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    seq: int | None
    before: torch.Tensor | None
    spot: Spot

    def inputs(self) -> list[tuple[str, torch.Tensor]]:
        """The tensor arguments with their names in the schema."""
        return list(self.info.tensors(self.args, self.kwargs))

    def written(self) -> list[torch.Tensor]:
        """The tensors that the op wrote in place."""
        return self.info.written_tensors(self.args, self.kwargs)

    def numbers(self) -> list[float]:
        """The Python numbers among the arguments."""
        return [
            float(value)
            for _, value in self.info.named_arguments(self.args, self.kwargs)
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]


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
