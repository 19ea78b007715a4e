"""What `gradscope check` does with its options, and the line that shows how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradscope.check.cases import cases_of
from gradscope.config import Config, Input
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Summary
from gradscope.report.printable import clean
from gradscope.report.status import status_line

if TYPE_CHECKING:
    from gradscope.check.workers import Standing

SILENT_FOR = 1.0  # seconds: a short check needs no progress line


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says: targets, inputs, and settings that go before the file's."""

    targets: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)


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
    from gradscope.check.whole import check, code_of

    cases = cases_of(config, asked.targets, inputs=asked.inputs, **asked.given)
    if not cases and config.path is None:
        raise GradscopeError(
            "no gradscope.yaml says what to check",
            help="gradscope check --init writes one for the programs of this folder; or name a "
            "target: gradscope check my_loss.py",
        )
    if not cases:
        raise GradscopeError(
            f"{config.path} names no target",
            help="give it targets: [my_loss.py], or name one here: gradscope check my_loss.py",
        )
    whole = config.overridden(**asked.given)
    with progress_line() as on_progress:
        summary = check(whole, cases, write_baseline=write_baseline, on_progress=on_progress)
    return summary, code_of(summary, cases, whole)


@contextmanager
def progress_line() -> Iterator[Callable[[Standing], None] | None]:
    """Gives the function that shows how far the check is, None where stderr is no terminal."""
    with status_line() as say:
        if say is None:
            yield None
            return

        def show(standing: Standing) -> None:
            if standing.seconds >= SILENT_FOR:
                counts = f"{standing.done} of {standing.total} checked, {standing.seconds:.0f} s"
                say(f"{counts}: {clean(', '.join(standing.running))}")

        yield show
