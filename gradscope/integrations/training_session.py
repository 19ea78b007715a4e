"""A training loop that is somebody else's, as its callbacks see it: what all of them share.

begin ──► (step, ...) ──► before_update ──► after_update ──► ... ──► end
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gradscope.config import load_config
from gradscope.config.scalars import words
from gradscope.errors import GradscopeError
from gradscope.facts import NotChecked, Report, Severity, Trace, Trouble, plural
from gradscope.integrations.in_place import InPlace
from gradscope.integrations.watch import Watch
from gradscope.record.finite import all_finite
from gradscope.record.tracing import unobserved
from gradscope.writing import write_whole

PAGE = "gradscope.html"
_FIRST_JUDGED = 8  # updates, and then as often as they double
_MISSED = "it was repeated in the process itself, and watching has ended with that"
_BAD = (Trouble.NAN, Trouble.INF)


class Session(Watch):
    """Watches a whole training. The step that fails is repeated in a copy of the process, before
    the update that it would spoil: in full, and to try its fixes."""

    def __init__(self, name: str, **settings: Any) -> None:
        config = load_config().overridden(
            select=words(settings.pop("select")), ignore=words(settings.pop("ignore"))
        )
        super().__init__(name, config, **settings)
        self._in_place = InPlace(name, config, self._observation, self._start_again, self._take_off)
        self._held: list[torch.Tensor] = []  # what the update is about to change
        self._updates = 0
        self._missed = 0  # updates since nobody watches any more
        self.is_over = False

    def step(self, call: Callable[[], object] | None) -> None:
        """A step begins. `call` repeats it; None where it cannot be repeated."""
        if call is not None:
            self._in_place.begin(call)

    def before_update(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether to stop, since the loss or their gradients are bad, or the training so far is
        unhealthy."""
        if self._replayed is not None:
            return False
        self._held = list(parameters)
        with unobserved():
            is_bad = self._in_place.has_bad_loss() or not all_finite(one.grad for one in self._held)
        if is_bad:
            self._replayed = self._in_place.report()
        else:
            self._in_place.note_sound()
        return is_bad or (self._shared is None and self._is_due())  # all ranks stop, or none

    def after_update(self) -> None:
        self._in_place.forget()
        self._updates += 1
        self._missed += self.is_unwatched and any(one.grad is not None for one in self._held)

    def _is_due(self) -> bool:
        number = self._updates
        if number < _FIRST_JUDGED or number & (number - 1):
            return False
        return self.report().fails(Severity.ERROR)

    def _start_again(self) -> None:
        """Called in the copy of the process: clears the gradients of the step that it repeats."""
        self.is_over = True
        self._observation.__exit__(None, None, None)
        self._replayed = Report(self._name, Trace(self._name))  # none of a copy's own
        for one in self._held:
            one.grad = None

    def _take_off(self) -> None:
        """The failing step is made again in this process: what comes after it is not watched."""
        self.is_unwatched = True
        self._replayed = Report(self._name, Trace(self._name))  # what it calls again asks for none
        self._observation.__exit__(None, None, None)

    def leave(self) -> None:
        """The end, however it came."""
        if not self.is_over:
            self.is_over = True
            self.__exit__(None, None, None)

    def report(self) -> Report:
        """What was seen of the training, with what the repeated step showed in the place of what
        came of it."""
        own, (_, again, _) = super().report(), self._story()
        if again is None:
            return own
        if not again.findings or again.replay is None:
            left = again.not_searched or (NotChecked("the failing step", "it was sound again"),)
            return replace(own, not_searched=left)
        kept = (
            one
            for one in own.findings
            if one.step < again.replay.step or any(s.trouble not in _BAD for s in one.symptoms)
        )
        found = replace(own, findings=(*again.findings, *kept), replay=again.replay)
        if not self._missed:
            return found
        missed = NotChecked(f"the {plural(self._missed, 'update')} after the failing step", _MISSED)
        return replace(found, not_searched=(*found.not_searched, missed))


def alone(model: Any, ranks: int) -> Any:
    """A model without what makes its gradients the same on all ranks; None where they are not, so
    that no rank can make a step, or stop, by itself."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return model.module
    return model if ranks == 1 else None


class Callback:
    """The parameters that the callbacks of all frameworks have, and what they do with them.

    The training is watched as `gradscope.watch` does. With `stop` it ends, without the update, at
    the first step whose loss or gradients are bad; else it runs on. `folder` is where the report
    lies as a page, by default beside the checkpoints. `logger` is told of the norms, by default the
    one that the trainer has; False: none. `select` and `ignore` are codes, names or families of
    rules. `session` has the findings, and the report in any format.
    """

    def __init__(
        self,
        *,
        stop: bool = True,
        every_step: bool = False,
        select: str | Iterable[str] | None = None,
        ignore: str | Iterable[str] | None = None,
        folder: str | Path | None = None,
        logger: object = None,
    ) -> None:
        super().__init__()
        self.stop = stop
        self.folder = folder
        self.logger = logger
        self._settings = {"every_step": every_step, "select": select, "ignore": ignore}
        self.session: Session | None = None

    def begin(self, name: str, loggers: Iterable[object] = (), every: int = 1) -> Session:
        """`loggers` are those of the trainer, which are told of every `every`th update."""
        given = self.logger if self.logger is not None else next(iter(loggers), None)
        logger = given if given is not False else None
        self.session = Session(name, logger=logger, log_every=every, **self._settings)
        self.session.__enter__()
        return self.session

    def end(self, beside: str | Path | None) -> None:
        """Print the report, and write it as a page; once."""
        session = self.session
        if session is None or session.is_over:
            return
        session.leave()
        if session.rank:
            return  # the first one tells it
        print(session.text(), file=sys.stdout, flush=True)
        folder = self.folder or beside
        if folder is not None:
            with suppress(OSError, GradscopeError):  # a full disk must not cost the model
                path = Path(folder)
                path.mkdir(parents=True, exist_ok=True)
                write_whole(path / PAGE, session.text("html"))
