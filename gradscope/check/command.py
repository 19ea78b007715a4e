"""What `gradscope check` does with its options: settings, a progress line, reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gradscope.check.cases import TIME_LIMIT, Case, cases_of
from gradscope.config import Config, Input
from gradscope.config.scalars import WrongValue
from gradscope.config.values import READERS
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Summary
from gradscope.report.text import clean

SILENT_FOR = 1.0  # seconds: a short check needs no progress line


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says: targets, inputs, and settings that go before the file's."""

    targets: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, read as the configuration's keys are.

    Raises GradscopeError with the option where a value is wrong.
    """
    found = {}
    for name, value in options.items():
        if value is None:
            continue
        key = name.replace("_", "-")
        try:
            found[name] = READERS[key](value)
        except WrongValue as error:
            words, _, help = f"--{key.removesuffix('s')} {error}".partition("\n")
            raise GradscopeError(words, help=help) from None
    return found


def report_places(
    format: str, output: Path | None, more: Iterable[str]
) -> tuple[tuple[str, Path | None, str], ...]:
    """Each report that is wanted: a format, a file (None: stdout), the option that named it."""
    places: list[tuple[str, Path | None, str]] = [(format, output, "--output")]
    for text in more:
        name, equals, file = text.partition("=")
        if not (equals and file):
            raise GradscopeError(
                f"--report {text} is not FORMAT=FILE", help="for example --report sarif=out.sarif"
            )
        places.append((name, Path(file), "--report"))
    return tuple(places)


def run(config: Config, asked: Asked, *, write_baseline: bool = False) -> tuple[Summary, ExitCode]:
    """Check what was asked for, and the exit code that follows."""
    from gradscope.check.run import check, code_of

    cases = cases_of(config, asked.targets, inputs=asked.inputs, **asked.given)
    whole = config.overridden(**asked.given)
    with progress_line() as on_progress:
        summary = check(whole, cases, write_baseline=write_baseline, on_progress=on_progress)
    return summary, code_of(summary, cases, whole)


@contextmanager
def progress_line() -> Iterator[Any]:
    """Gives the function that shows how far the check is, None where stderr is no terminal."""
    from rich.console import Console
    from rich.control import Control
    from rich.segment import ControlType

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield None
        return
    erase = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))

    def show(standing: Any) -> None:
        if standing.seconds < SILENT_FOR:
            return
        names = clean(", ".join(standing.running))
        counts = f"{standing.done} of {standing.total} checked, {standing.seconds:.0f} s"
        console.control(erase)
        told = f"gradscope: {counts}: {names}"
        console.print(told, end="", style="dim", overflow="crop", no_wrap=True)

    try:
        yield show
    finally:
        console.control(erase)


def shown(config: Config, asked: Asked) -> str:
    """Every setting with where it came from, for the file as a whole and for each target."""
    cases = cases_of(config, asked.targets, inputs=asked.inputs, **asked.given)
    whole = config.overridden(**asked.given)
    lines = [f"# {config.path or 'no configuration file'}", *_settings(whole, asked, None)]
    for case in {case.name: case for case in cases}.values():
        lines += ["", f"# target {case.name}", *_settings(case.config, asked, whole)]
    width = max((len(line.split("  # ")[0]) for line in lines if "  # " in line), default=0)
    return "".join(f"{clean(_aligned(line, width))}\n" for line in lines)


def _aligned(line: str, width: int) -> str:
    value, mark, origin = line.partition("  # ")
    return f"{value:<{min(width, 60)}}  # {origin}" if mark else line


def _settings(config: Config, asked: Asked, above: Config | None) -> Iterator[str]:
    """The settings that differ from those above, all where nothing is above."""
    for one in fields(config):
        if one.name in ("path", "targets", "origins", "name"):
            continue
        value = getattr(config, one.name)
        key = one.name.replace("_", "-")
        if above is not None and value == getattr(above, one.name):
            continue
        if one.name in asked.given or (one.name == "inputs" and asked.inputs):
            origin = "command line"
        elif key == "time-limit" and value == TIME_LIMIT and key not in config.origins:
            origin = "default of check"
        else:
            origin = config.origins.get(key, "default")
        yield f"{key}: {_worded(value)}  # {origin}"


def _worded(value: object) -> str:
    from gradscope.config import Thresholds

    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case Input():
            return f"{value.name}={value.expression}"
        case Thresholds():
            set_ = {
                name.replace("_", "-"): getattr(value, name)
                for name in Thresholds.__slots__
                if getattr(value, name) is not None
            }
            return ", ".join(f"{name} {limit:g}" for name, limit in set_.items()) or "none"
        case tuple():
            return f"[{', '.join(_worded(item) for item in value)}]"
    return str(value)


__all__ = ["Asked", "Case", "given", "report_places", "run", "shown"]
