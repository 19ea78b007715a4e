"""CUDA graphs are left alone: what is captured has no values before the graph runs, and a question
of ours would become a part of the graph, or break the capture off."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from gradscope.record.stand_ins import stand_in


def is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def watch_captures(
    stack: ExitStack, before: Callable[[], object], after: Callable[[], object]
) -> None:
    """Call `before` and `after` around each capture, until `stack` ends."""
    graph = torch.cuda.CUDAGraph
    original_begin, original_end = graph.capture_begin, graph.capture_end

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        before()
        original_begin(self, *args, **kwargs)

    def capture_end(self: Any) -> None:
        try:
            original_end(self)
        finally:
            after()

    stand_in(stack, graph, "capture_begin", capture_begin)
    stand_in(stack, graph, "capture_end", capture_end)
