"""A step in a framework's own loop, bare and with gradscope's callback. One whose package is absent
is left out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmark.steps import Clock

STEPS = 300


@dataclass(frozen=True, slots=True)
class Beside:
    """Medians in seconds of a step, of the round in which it was least."""

    framework: str
    bare: float
    watched: float


class Net(nn.Module):
    """20 layers of width 64, as the mlp of the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net: Any = nn.Sequential(
            *(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(20))
        )
        for weight in self.net.parameters():
            if weight.dim() == 2:
                nn.init.kaiming_normal_(weight, nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.net(x) - 1).square().mean()}


def lightning(batches: list[dict[str, Any]], clock: Clock, *, watched: bool) -> list[float]:
    package: Any = import_module("lightning")

    from gradscope.integrations.lightning import GradscopeCallback

    times: list[float] = []

    class Module(package.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Net()

        def training_step(self, batch: Any, number: int) -> Any:
            times.append(clock())
            return self.inner(batch["x"])["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    silent = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    callbacks = [GradscopeCallback(stop=False)] if watched else []
    trainer = package.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        enable_checkpointing=False,
        callbacks=callbacks,
        **silent,
    )
    rows: Any = batches
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=None))
    return times


def transformers(batches: list[dict[str, Any]], clock: Clock, *, watched: bool) -> list[float]:
    package: Any = import_module("transformers")

    from gradscope.integrations.transformers import GradscopeCallback

    times: list[float] = []

    class Timed(package.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *given: Any, **known: Any) -> None:
            times.append(clock())

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        arguments = package.TrainingArguments(
            folder,
            max_steps=STEPS,
            use_cpu=True,
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
            per_device_train_batch_size=32,
            logging_strategy="no",
            optim="sgd",
        )
        rows = [{"x": row} for batch in batches for row in batch["x"]]
        callbacks = [Timed(), *([GradscopeCallback(stop=False)] if watched else [])]
        package.Trainer(Net(), arguments, train_dataset=rows, callbacks=callbacks).train()
    return times


LOOPS: tuple[Callable[..., list[float]], ...] = (lightning, transformers)


def measure(rounds: int, clock: Clock) -> Iterator[Beside]:
    batches = [{"x": torch.randn(32, 64)} for _ in range(STEPS)]
    for loop in LOOPS:
        if find_spec(loop.__name__) is None:
            continue
        least = {False: float("inf"), True: float("inf")}
        for _ in range(rounds):
            for watched in least:
                with redirect_stdout(StringIO()):
                    times = loop(batches, clock, watched=watched)
                step = median(after - before for before, after in pairwise(times[16:]))
                least[watched] = min(least[watched], step)
        yield Beside(loop.__name__, least[False], least[True])
