"""The check as a whole: cases, their reports, and what of them the project has accepted. And the
line that shows how far it is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gradscope import accepted
from gradscope.check.cases import Case, cases_of
from gradscope.check.judge import judge
from gradscope.check.workers import Standing, run_all
from gradscope.config import Config, Input, errors_at
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Report, Summary, Trace, plural
from gradscope.pipeline import exit_code
from gradscope.programs.choose import choose
from gradscope.record.sites import shown_path
from gradscope.report.printable import clean
from gradscope.report.status import status_line
from gradscope.rules import rule_filter
from gradscope.writing import check_writable

SILENT_FOR = 1.0  # seconds: a short check needs no progress line


def run(
    config: Config,
    asked: Iterable[str] = (),
    *,
    inputs: tuple[Input, ...] = (),
    write_baseline: bool = False,
) -> tuple[Summary, ExitCode]:
    """Check what was asked for, as in `cases_of`, and the exit code that follows."""
    cases = cases_of(config, asked, inputs=inputs)
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
    with _progress_line() as on_progress:
        summary = check(config, cases, write_baseline=write_baseline, on_progress=on_progress)
    return summary, code_of(summary, cases, config)


@contextmanager
def _progress_line() -> Iterator[Callable[[Standing], None] | None]:
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


def check(
    config: Config,
    cases: Sequence[Case],
    *,
    write_baseline: bool = False,
    on_progress: Callable[[Standing], None] | None = None,
) -> Summary:
    """Judge every case, `config.jobs` at a time.

    Raises GradscopeError for what concerns the check as a whole: an unknown rule, a baseline that
    is none. A case that cannot be run is a failed report among the others.
    """
    for case in cases:
        rule_filter(case.config)
    baseline = config.folder / config.baseline if config.baseline else None
    if write_baseline and baseline is None:
        raise GradscopeError(
            "--write-baseline does not know where to",
            help="give --baseline FILE, or baseline: FILE",
        )
    if baseline is not None and write_baseline:
        check_writable(baseline, asked_by="--baseline")
    elif baseline is not None:
        with errors_at(config.origins.get("baseline")):
            accepted.read_baseline(baseline)  # before programs run for hours
    reports = run_all(cases, judge, jobs=config.jobs, on_progress=on_progress)
    reports, warnings = accepted.without_ignored(
        reports,
        sources_of(cases),
        everything={one.name for one in config.targets} <= {case.name for case in cases},
    )
    wanted = rule_filter(config)
    remarks: tuple[str, ...] = ()
    if write_baseline and baseline is not None:
        count = accepted.write_baseline(baseline, reports)
        remarks = (f"wrote {plural(count, 'accepted finding')} to {baseline}",)
    if baseline is not None:
        reports = accepted.without_known(reports, baseline)
    return Summary(reports, tuple(one for one in warnings if wanted(one)), remarks)


def sources_of(cases: Iterable[Case]) -> tuple[str, ...]:
    """The files that the targets name, as findings name them."""
    found: list[str] = []
    for case in cases:
        with suppress(GradscopeError):  # the case's own report says so
            found += choose(case.config).target.places
    files = (Path(place) for place in found if place.endswith(".py"))
    return tuple(shown_path(str(file.resolve())) for file in files if file.is_file())


def code_of(summary: Summary, cases: Sequence[Case], config: Config) -> ExitCode:
    """Findings count first, then what could not be run, then faults of our own."""
    codes = {
        exit_code(report, case.config.fail_on)
        for report, case in zip(summary.reports, cases, strict=True)
    }
    if any(report.trace.ending.kind == "fault" for report in summary.reports):
        codes.add(ExitCode.INTERNAL)
    about_the_check = Report("check", Trace("check"), summary.findings)
    codes.add(exit_code(about_the_check, config.fail_on))
    worst = (ExitCode.FINDINGS, ExitCode.INTERNAL, ExitCode.UNUSABLE)
    return next((code for code in worst if code in codes), ExitCode.OK)
