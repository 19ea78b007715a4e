"""Lightning: Trainer(callbacks=[GradscopeCallback()])."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

from gradscope.integrations.training_session import Callback, alone

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _bases() -> tuple[type, ...]:
    """The class of the package in use; both, where a program has imported both."""
    used = [name for name in _NAMES if name in sys.modules]
    there = [name for name in _NAMES if find_spec(name.partition(".")[0])]
    return tuple(import_module(name).Callback for name in used or there[:1] or _NAMES[:1])


class GradscopeCallback(Callback, *_bases()):  # type: ignore[misc]
    __doc__ = Callback.__doc__

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        name, every = type(pl_module).__name__, max(trainer.log_every_n_steps, 1)
        self.begin(f"{name} in Trainer.fit", trainer.loggers, every)
        self._has_updated = False

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, number: int) -> None:
        if self.session is None:
            return
        if self._has_updated:
            self.session.after_update()
            self._has_updated = False
        self.session.step(_again(trainer, pl_module, batch, number))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        session = self.session
        if session is None or getattr(trainer.precision_plugin, "scaler", None) is not None:
            return  # a scaler skips the steps whose gradients are bad, and is meant to
        self._has_updated = True
        held = [one for group in optimizer.param_groups for one in group["params"]]
        if session.before_update(held) and self.stop and _alone(trainer) is not None:
            for one in held:
                one.grad = None
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
            trainer.should_stop = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end(_beside(trainer))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.end(_beside(trainer))


def _again(trainer: Any, module: Any, batch: Any, number: int) -> Any:
    """What repeats a step; None where it is not known: where several processes share a model, and
    where the step takes its batches itself."""
    asked = signature(module.training_step).parameters
    if _alone(trainer) is None or "dataloader_iter" in asked:
        return None
    given = (batch, number) if len(asked) > 1 else (batch,)
    share = trainer.accumulate_grad_batches

    def again() -> None:
        trainer.strategy.model = _alone(trainer)
        output = trainer.strategy.training_step(*given)
        if module.automatic_optimization and output is not None:
            loss = output["loss"] if isinstance(output, Mapping) else output
            module.backward(loss / share)

    return again


def _alone(trainer: Any) -> Any:
    return alone(trainer.strategy.model, trainer.world_size)


def _beside(trainer: Any) -> str | None:
    """The folder of the checkpoints; None in any process but the first, and without any."""
    keeper = trainer.checkpoint_callback
    return getattr(keeper, "dirpath", None) if trainer.is_global_zero else None
