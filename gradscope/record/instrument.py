"""What stands in for autograd's engine and hooks optimizers, once for all that observes a run."""

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any, Protocol

import torch

from gradscope.record.optimizers import Work, watch_optimizers
from gradscope.record.passes import BackwardPass, plain_loss
from gradscope.record.stand_ins import stand_in
from gradscope.record.tracing import computes_values

Engine = Callable[[BackwardPass], Any]


class Observer(Protocol):
    """What observes a run."""

    def run_backward(self, engine: Engine, one: BackwardPass) -> Any:
        """Run the engine, and look before and after. Not called where ops compute no values."""

    def lets_pass(self, loss: float) -> bool:
        """Whether the coming pass, which adds gradients to leaves, is one of many, so that nobody
        has to look at it closely. Its loss is finite, and an op of ours would not be seen."""

    def run_calmly(
        self, engine: Callable[[], Any], loss: float, root: torch.Tensor, frame: FrameType
    ) -> Any:
        """Run the engine for such a pass, which `frame` asks for; `root` is differentiated."""

    def optimizer_made(self, optimizer: Any, frame: FrameType) -> None: ...
    def optimizer_begins(self, work: Work) -> None: ...
    def optimizer_ends(self, work: Work) -> None: ...


def tell(stack: ExitStack, observer: Observer, elsewhere: dict[str, None]) -> None:
    """Until `stack` ends tell it of what this thread does. The names of other threads that run
    backward go to `elsewhere`."""
    thread = threading.get_ident()
    original: Callable[..., Any] = torch.autograd.graph._engine_run_backward

    def run(one: BackwardPass) -> Any:
        return original(one.outputs, *one.args, **one.kwargs)

    def engine(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            elsewhere[threading.current_thread().name] = None
            return original(t_outputs, *args, **kwargs)
        if not computes_values():
            return original(t_outputs, *args, **kwargs)
        frame, loss = sys._getframe(1), plain_loss(t_outputs, kwargs)
        if loss is None or not observer.lets_pass(loss):
            return observer.run_backward(run, BackwardPass(t_outputs, args, kwargs, frame))
        calmly = functools.partial(original, t_outputs, *args, **kwargs)
        return observer.run_calmly(calmly, loss, t_outputs[0], frame)

    for owner in (torch.autograd, torch.autograd.graph):
        stand_in(stack, owner, "_engine_run_backward", engine, inner=True)
    watch_optimizers(
        stack, observer.optimizer_begins, observer.optimizer_ends, observer.optimizer_made
    )
