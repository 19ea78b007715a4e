"""transformers: Trainer(..., callbacks=[GradscopeCallback()])."""

import sys
from collections.abc import Iterator
from importlib import import_module
from traceback import walk_stack
from typing import Any

from gradscope.integrations.training_session import Callback, Session, alone

transformers: Any = import_module("transformers")


class GradscopeCallback(Callback, transformers.TrainerCallback):  # type: ignore[misc]
    __doc__ = Callback.__doc__

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        self._trainer = _calling(self)
        name, every = type(known["model"]).__name__, max(int(state.logging_steps), 1)
        session = self.begin(f"{name} in Trainer.train", _loggers(self._trainer), every)
        if self._trainer is not None:
            self._trainer.training_step = self._stepping(session, self._trainer.training_step)

    def _stepping(self, session: Session, step: Any) -> Any:
        """The trainer's step, which is noted before it is made."""

        def training_step(*args: Any, **kwargs: Any) -> Any:
            model = alone(args[0], self._trainer.args.world_size)
            if model is not None:
                session.step(lambda: step(model, *args[1:], **kwargs))
            try:
                return step(*args, **kwargs)
            except BaseException:
                self._leave()
                raise

        return training_step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        accelerator = getattr(self._trainer, "accelerator", None)
        if self.session is None or getattr(accelerator, "scaler", None) is not None:
            return  # a scaler skips the steps whose gradients are bad, and is meant to
        held = list(known["model"].parameters())
        is_alike = alone(known["model"], args.world_size) is not None
        if self.session.before_update(held) and self.stop and is_alike:
            for one in held:
                one.grad = None
            control.should_training_stop = True

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        if self.session is not None:
            self.session.after_update()

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        trainer = self._trainer
        if trainer is not None:
            vars(trainer).pop("training_step", None)
        first = trainer is None or trainer.is_world_process_zero()
        self.end(trainer.args.output_dir if trainer is not None and first else None)


def _calling(callback: object) -> Any:
    """The trainer that calls a callback, which is not handed to it; None where there is none."""
    for frame, _ in walk_stack(sys._getframe(1)):
        one = frame.f_locals.get("self")
        if isinstance(one, transformers.Trainer) and callback in one.callback_handler.callbacks:
            return one
    return None


def _loggers(trainer: Any) -> Iterator[object]:
    """The loggers that the trainer's own callbacks have opened."""
    for one in trainer.callback_handler.callbacks if trainer is not None else ():
        for held in ("tb_writer", "_wandb", "_ml_flow"):
            if (logger := getattr(one, held, None)) is not None:
                yield logger
