"""How to run a target."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.config import Config
from gradscope.facts import Limits
from gradscope.facts.magnitudes import DEFAULT_LIMITS
from gradscope.programs.conditions import UNCHANGED, Conditions


@dataclass(frozen=True, slots=True)
class Repeat:
    """Of a program that has run before: what it writes goes to a folder of this run's own, it is
    left at the end of the last step with nothing of its own run after that, and before it does what
    `allowed` does not let it do again. `made` are the paths that the first run made: they are not
    there yet. `after_update`: the last step ends with its update, and not where the next backward
    begins."""

    made: frozenset[str] = frozenset()
    allowed: bool = False
    after_update: bool = True


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`time_limit` is in seconds, None for none. `steps` and `passes` end it as in `Limit`. Its
    steps are looked at in full from `full_from` on, as in `Depth`."""

    steps: int | None = None
    passes: int | None = None
    full_from: int | None = None
    keep_going: bool = False
    time_limit: float | None = None
    stdout_to_stderr: bool = False  # where the report itself is to have stdout
    conditions: Conditions = UNCHANGED
    custom_backward: bool = True  # check each custom autograd.Function
    hazards: bool = False  # measure what came near to breaking
    limits: Limits = DEFAULT_LIMITS  # that the sizes are judged by
    rerun: bool = False  # what the program does outside may be done again

    @classmethod
    def configured(
        cls, config: Config, *, precision: str | None = None, stdout_to_stderr: bool = False
    ) -> RunOptions:
        """As a configuration has it. `precision` is as in `Conditions`."""
        return cls(
            steps=config.steps,
            full_from=0 if config.every_step else None,
            keep_going=config.keep_going,
            time_limit=config.time_limit,
            stdout_to_stderr=stdout_to_stderr,
            conditions=Conditions(precision, config.device, config.memory_limit),
            custom_backward=config.custom_backward,
            limits=config.thresholds.limits,
            rerun=config.rerun,
        )


DEFAULTS = RunOptions()
SAMPLE = 100  # steps of a program that tell how healthy it is
