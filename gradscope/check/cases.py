"""What a configuration asks to be checked: each target under each dtype."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gradscope.config import Config, Input
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError, did_you_mean
from gradscope.facts import Ending, Report, Trace

TIME_LIMIT = 300.0  # seconds: a preflight that never ends blocks a build


@dataclass(frozen=True, slots=True)
class Case:
    """One target under one dtype (None: as the program has it). `config` is the target's own."""

    name: str
    config: Config
    precision: str | None = None

    @property
    def shown(self) -> str:
        return f"{self.name} [{self.precision}]" if self.precision else self.name

    def ended(self, ending: Ending) -> Report:
        """The report where nothing was seen of its run."""
        return Report(self.shown, Trace(self.shown, ending=ending))


def cases_of(
    config: Config, asked: Iterable[str] = (), *, inputs: tuple[Input, ...] = ()
) -> tuple[Case, ...]:
    """The cases of the targets that were asked for, of all where none was.

    What is asked for is the name of a configured target, or any target that `trace` takes.

    Raises GradscopeError where a name is neither. Where nothing is asked for or configured, there
    are none.
    """
    base = replace(config, targets=())
    listed = {str(one.name): one for one in config.targets or _single(base)}
    chosen = [_asked_for(name, listed, base) for name in asked] or list(listed.values())
    return tuple(case for one in chosen for case in _by_precision(one, inputs))


def _single(base: Config) -> tuple[Config, ...]:
    """A file without a list of targets may still name one."""
    name = base.target or base.model
    return (replace(base, name=base.name or name),) if name else ()


def _asked_for(name: str, listed: dict[str, Config], base: Config) -> Config:
    if name in listed:
        return listed[name]
    from gradscope.examples import EXAMPLES
    from gradscope.programs.parse import find_module

    is_known = name in EXAMPLES or ":" in name or Path(name).exists()
    if not is_known and find_module(name) is None:
        hint = did_you_mean(name, [*listed, *EXAMPLES])
        known = f"configured are {', '.join(listed)}" if listed else "none is configured"
        missing = "there is no file" if name.endswith(".py") else "unknown target"
        raise GradscopeError(f"{missing} {name}", help=f"{hint} {known}".lstrip())
    # Relative to where the command was typed, and not to the configuration's folder.
    return replace(base, path=None, target=name, model=None, loss=None, batch=None, name=name)


def _by_precision(config: Config, inputs: tuple[Input, ...]) -> list[Case]:
    config = replace(
        config, inputs=(*config.inputs, *inputs), time_limit=config.time_limit or TIME_LIMIT
    )
    return [Case(config.name or "", config, precision) for precision in config.dtypes or (None,)]
