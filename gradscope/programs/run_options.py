"""How to run a target, and what the run is made under: a dtype or autocast, a device, a limit on
memory."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradscope.config import Config
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Conditions:
    """`precision` is a dtype, `autocast` or `autocast-DTYPE`; `memory_limit` is in bytes, on top of
    what the process holds before the program starts. None leaves things as the program has them.

    A script gets its dtype and device as torch's defaults, so a tensor that names its own keeps
    it. Inputs, models and batches of other targets are moved as well.
    """

    precision: str | None = None
    device: str | None = None
    memory_limit: int | None = None

    def apply(self) -> None:
        """Called once, in the child, before anything of the program is imported."""
        import torch

        if self.memory_limit is not None:
            _limit_memory(self.memory_limit)
        if self.device is not None:
            try:
                torch.empty(0, device=self.device)
            except (RuntimeError, AssertionError) as error:
                reason = str(error).splitlines()[0]
                raise GradscopeError(f"device {self.device} cannot be used: {reason}") from error
            torch.set_default_device(self.device)
        dtype = self._dtype
        if dtype is not None:
            torch.set_default_dtype(dtype)

    def enter_autocast(self) -> None:
        """Called once the inputs are made; it holds until the child is gone."""
        if self.precision is None or not self.precision.startswith("autocast"):
            return
        import torch

        kind = torch.device(self.device or "cpu").type
        name = self.precision.partition("-")[2]
        torch.autocast(kind, dtype=getattr(torch, name) if name else None).__enter__()

    def moved(self, value: Any) -> Any:
        """A tensor, a module or a batch, in the dtype and on the device that were asked for."""
        import torch

        match value:
            case torch.nn.Module():
                return value.to(device=self.device, dtype=self._dtype)
            case torch.Tensor():
                return self._moved_tensor(value)
            case dict():
                return {name: self.moved(item) for name, item in value.items()}
            case tuple() | list() if type(value) in (tuple, list):
                return type(value)(self.moved(item) for item in value)
        return value

    def _moved_tensor(self, value: Any) -> Any:
        """A leaf stays a leaf: its gradient is what the program is judged by."""
        dtype = self._dtype if value.is_floating_point() else None
        moved = value.detach().to(device=self.device, dtype=dtype)
        if moved.dtype == value.dtype and moved.device == value.device:
            return value
        return moved.requires_grad_(value.requires_grad)

    @property
    def _dtype(self) -> Any:
        if self.precision is None or self.precision.startswith("autocast"):
            return None
        import torch

        return getattr(torch, self.precision)


UNCHANGED = Conditions()


@dataclass(frozen=True, slots=True)
class Repeat:
    """Of a program that has run before: what it writes goes to a folder of this run's own, it is
    left at the end of the last step with nothing of its own run after that, and before it does what
    `allowed` does not let it do again. `made` are the paths that the first run made: they are not
    there yet; `folders` those that it had made when this one begins, and may have deleted since.
    `after_update`: the last step ends with its update, and not where the next backward
    begins."""

    made: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    allowed: bool = False
    after_update: bool = True


@dataclass(frozen=True, slots=True)
class Keeping:
    """The steps from `since` on are kept in a folder, where their tensors have at most so many
    bytes. `target` is what they are called."""

    folder: str
    since: int
    most: int
    target: str


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
    keeping: Keeping | None = None
    rerun: bool = False  # what the program does outside may be done again

    @classmethod
    def configured(
        cls, config: Config, *, precision: str | None = None, stdout_to_stderr: bool = False
    ) -> RunOptions:
        """The options that a configuration gives. `precision` is as in `Conditions`."""
        return cls(
            steps=config.steps,
            full_from=0 if config.every_step else None,
            keep_going=config.keep_going,
            time_limit=config.time_limit,
            stdout_to_stderr=stdout_to_stderr,
            conditions=Conditions(precision, config.device, config.memory_limit),
            custom_backward=config.custom_backward,
            limits=config.thresholds,
            rerun=config.rerun,
        )


DEFAULTS = RunOptions()


def _limit_memory(size: int) -> None:
    """RLIMIT_DATA counts what is written to; address space alone, of which torch takes a lot, is
    free. Where the platform has no such limit, none is kept."""
    if sys.platform != "linux":
        return
    import resource

    held = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if held is None:
        return
    wanted = int(held[1]) * 1024 + size
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))
