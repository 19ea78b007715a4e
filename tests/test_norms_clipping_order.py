"""Clipping at the wrong time is said; at the right time it is not."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from gradscope.record.magnitudes import MagnitudeWatch


def loop(body: str) -> list[tuple[str, float]]:
    """Three steps of a training loop with the given lines after backward."""
    code = compile(body, "loop.py", "exec")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    clip = nn.utils.clip_grad_norm_  # a name from before the watch
    with MagnitudeWatch() as watch:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            scope = {"loss": loss, "scaler": scaler, "optimizer": optimizer}
            exec(code, {**scope, "clip": clip, "model": model})
    assert watch.notes == []
    return [(found.order, found.max_norm) for found in watch.facts().clips]


PLAIN = "loss.backward()\n"
SCALED = "scaler.scale(loss).backward()\n"
CLIP = "clip(model.parameters(), 0.5)\n"
STEP = "optimizer.step()\n"
SCALER_STEP = "scaler.step(optimizer)\nscaler.update()\n"
UNSCALE = "scaler.unscale_(optimizer)\n"


@pytest.mark.parametrize(
    ("body", "order"),
    [
        (PLAIN + STEP + CLIP, "after-step"),
        (SCALED + CLIP + SCALER_STEP, "before-unscale"),
        (SCALED + CLIP + UNSCALE + SCALER_STEP, "before-unscale"),
        (SCALED + UNSCALE + SCALER_STEP + CLIP, "after-step"),
    ],
)
def test_a_wrong_order_is_found_once(body: str, order: str) -> None:
    assert loop(body) == [(order, 0.5)]


@pytest.mark.parametrize(
    "body",
    [
        PLAIN + CLIP + STEP,
        SCALED + UNSCALE + CLIP + SCALER_STEP,
        PLAIN + CLIP + STEP + "optimizer.step()",
        PLAIN + STEP + CLIP + STEP,  # clipped for a second update with the same gradients
    ],
)
def test_the_right_order_is_silent(body: str) -> None:
    assert loop(body) == []


def test_torch_is_left_as_it_was() -> None:
    before = (nn.utils.clip_grad._clip_grads_with_norm_, torch.amp.GradScaler.unscale_)
    with MagnitudeWatch():
        pass

    assert before == (nn.utils.clip_grad._clip_grads_with_norm_, torch.amp.GradScaler.unscale_)


def test_the_optimizer_of_another_thread_is_left_alone() -> None:
    mine, other = (torch.ones(2, requires_grad=True) for _ in range(2))

    def train(leaf: torch.Tensor) -> None:
        leaf.square().sum().backward()
        torch.optim.SGD([leaf], lr=0.1).step()

    with MagnitudeWatch() as watch:
        train(mine)
        thread = threading.Thread(target=train, args=(other,))
        thread.start()
        thread.join()
    assert len(watch.facts().updates) == 1
    assert [leaf.shape for leaf in watch.facts().leaves] == [(2,)]
