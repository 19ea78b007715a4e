"""How to run a target."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.config import Config
from gradscope.facts import Limits
from gradscope.facts.magnitudes import DEFAULT_LIMITS
from gradscope.target.conditions import UNCHANGED, Conditions


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`time_limit` is in seconds, None for none."""

    steps: int = 100
    keep_going: bool = False
    time_limit: float | None = None
    stdout_to_stderr: bool = False  # where the report itself is to have stdout
    conditions: Conditions = UNCHANGED
    custom_backward: bool = True  # check each custom autograd.Function
    hazards: bool = False  # measure what came near to breaking
    limits: Limits = DEFAULT_LIMITS  # that the sizes are judged by

    @classmethod
    def configured(
        cls, config: Config, *, precision: str | None = None, stdout_to_stderr: bool = False
    ) -> RunOptions:
        """As a configuration has it. `precision` is as in `Conditions`."""
        return cls(
            steps=config.steps,
            keep_going=config.keep_going,
            time_limit=config.time_limit,
            stdout_to_stderr=stdout_to_stderr,
            conditions=Conditions(precision, config.device, config.memory_limit),
            custom_backward=config.custom_backward,
            limits=config.thresholds.limits,
        )


DEFAULTS = RunOptions()
