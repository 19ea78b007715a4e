"""Clipping at the wrong time is said; at the right time it is not."""

import json
import threading
from pathlib import Path

import pytest
import torch
from corpus import diagnosed_file, patched
from torch import nn

from gradscope.facts import Finding, LateClip, Magnitudes, Severity, Trace
from gradscope.record import Observation
from gradscope.rules import RULES

SKIPPING = Path(__file__).parent / "healthy/steps_that_a_scaler_skips_late.py"


def clips(body: str) -> list[LateClip]:
    """What is found in three steps of a training loop with the given lines after the loss."""
    code = compile(body, "loop.py", "exec")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    # Names from before the watch.
    clip, clip_value = nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_
    with Observation(each_op=False) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            scope = {"loss": loss, "scaler": scaler, "optimizer": optimizer}
            exec(code, {**scope, "clip": clip, "clip_value": clip_value, "model": model})
    assert watch.context.notes == []
    return list(watch.sizes.facts().clips)


def judge(found: list[LateClip]) -> list[Finding]:
    return list(RULES["GS405"].check(Trace("t", magnitudes=Magnitudes(clips=tuple(found))), ()))


PLAIN = "loss.backward()\n"
SCALED = "scaler.scale(loss).backward()\n"
CLIP = "clip(model.parameters(), 0.5)\n"
CLIP_VALUE = "clip_value(model.parameters(), 0.5)\n"
STEP = "optimizer.step()\n"
SCALER_STEP = "scaler.step(optimizer)\nscaler.update()\n"
UNSCALE = "scaler.unscale_(optimizer)\n"


@pytest.mark.parametrize(
    ("body", "order"),
    [
        (PLAIN + STEP + CLIP, "after-step"),
        (CLIP + PLAIN + STEP, "before-backward"),
        (CLIP + SCALED + SCALER_STEP, "before-backward"),
        (SCALED + CLIP + SCALER_STEP, "before-unscale"),
        (SCALED + CLIP + UNSCALE + SCALER_STEP, "before-unscale"),
        (SCALED + UNSCALE + SCALER_STEP + CLIP, "after-step"),
        (PLAIN + "clip(filter(None, []), 0.5)\n" + STEP, "of-nothing"),
        (PLAIN + STEP + CLIP_VALUE, "after-step"),
        (SCALED + CLIP_VALUE + SCALER_STEP, "before-unscale"),
    ],
)
def test_a_wrong_order_is_found_once(body, order):
    (found,) = clips(body)
    (finding,) = judge([found])

    assert (found.order, found.bound) == (order, 0.5)
    assert found.scale == (1024 if order == "before-unscale" else 1)
    assert finding.severity is Severity.ERROR and finding.op == found.function


def test_an_optimizer_whose_turn_it_is_not_has_nothing_to_clip():
    body = (
        "import torch\n"
        "w = torch.nn.Parameter(torch.full((3,), 5.0))\nother = torch.optim.SGD([w], 0.1)\n"
        "for turn in (0, 1):\n"
        "    model.zero_grad()\n"
        "    (w.square().sum() if turn else model(torch.ones(2, 4)).square().mean()).backward()\n"
        "    held = [one for one in model.parameters() if one.grad is not None]\n"
        "    clip(held, 0.5)\n"
        "    (other if turn else optimizer).step()\n"
    )

    assert clips(body) == []


def test_clipping_that_changes_nothing_is_a_note():
    (found,) = clips(PLAIN + STEP + CLIP.replace("0.5", "1e6"))

    assert found.total is not None and not found.acts
    assert judge([found])[0].severity is Severity.NOTE


@pytest.mark.parametrize(
    "body",
    [
        PLAIN + CLIP + STEP,
        PLAIN + CLIP_VALUE + STEP,
        SCALED + UNSCALE + CLIP_VALUE + SCALER_STEP,
        SCALED + UNSCALE + CLIP + SCALER_STEP,
        PLAIN + CLIP + STEP + "optimizer.step()",
        CLIP + PLAIN + CLIP + STEP,
        PLAIN + STEP + CLIP + STEP,  # clipped for a second update with the same gradients
    ],
)
def test_the_right_order_is_silent(body):
    assert clips(body) == []


def test_torch_is_left_as_it_was():
    def patched() -> list[object]:
        clip = nn.utils.clip_grad
        return [
            clip._clip_grads_with_norm_,
            clip._group_tensors_by_device_and_dtype,
            torch.amp.GradScaler.unscale_,
        ]

    before = patched()
    with Observation(each_op=False):
        assert not set(before) & set(patched())

    assert before == patched()


def test_the_optimizer_of_another_thread_is_left_alone():
    mine, other = (torch.ones(2, requires_grad=True) for _ in range(2))

    def train(leaf: torch.Tensor) -> None:
        leaf.square().sum().backward()
        torch.optim.SGD([leaf], lr=0.1).step()

    with Observation(each_op=False) as watch:
        train(mine)
        thread = threading.Thread(target=train, args=(other,))
        thread.start()
        thread.join()
    assert len(watch.sizes.facts().updates) == 1
    assert [leaf.shape for leaf in watch.sizes.facts().leaves] == [(2,)]


SCRIPT = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(torch.randn(8, 4)) - 30).square().mean()
"""
NORM = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"


@pytest.mark.parametrize(
    ("body", "repaired"),
    [
        (PLAIN + STEP + NORM, PLAIN + NORM + STEP),
        (NORM + PLAIN + STEP, PLAIN + NORM + STEP),
        (SCALED + NORM + SCALER_STEP, SCALED + UNSCALE + NORM + SCALER_STEP),
        (SCALED + NORM + UNSCALE + SCALER_STEP, SCALED + UNSCALE + NORM + SCALER_STEP),
        (SCALED + SCALER_STEP + NORM, SCALED + UNSCALE + NORM + SCALER_STEP),
    ],
)
@pytest.mark.long
def test_the_patch_puts_it_in_time(gradscope, tmp_path, body, repaired):
    file = tmp_path / "loop.py"
    file.write_text(SCRIPT + "".join(f"    {line}\n" for line in body.splitlines()))
    done = gradscope("trace", "loop.py", "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    fix = finding["fixes"][0]
    text = patched(fix["patch"], tmp_path, "loop.py")

    assert done.returncode == 1 and finding["rule"] == "GS405"
    assert fix["verified"] is True
    found = [line.strip() for line in text.removeprefix(SCRIPT).splitlines()]
    assert found == repaired.splitlines()


@pytest.mark.long
def test_the_clipping_that_came_too_early_leads_over_the_divergence(gradscope, tmp_path):
    body = (NORM + PLAIN + STEP).splitlines()
    script = SCRIPT.replace("lr=1e-2", "lr=0.9").replace("range(3)", "range(30)")
    (tmp_path / "loop.py").write_text(script + "".join(f"    {line}\n" for line in body))
    done = gradscope("trace", "loop.py", "--format", "json")

    found = json.loads(done.stdout)["findings"]
    assert [finding["rule"] for finding in found] == ["GS405", "GS404"]
    patches = [finding["fixes"][0]["patch"] for finding in found]
    assert patches[0] == patches[1]
    assert all(finding["fixes"][0]["verified"] for finding in found)


@pytest.mark.long
def test_gradients_that_were_clipped_before_some_passes_went_by_are_forgotten():
    """Those of now may have their ids."""
    assert not [one for one in diagnosed_file(SKIPPING).findings if one.rule == "GS405"]
