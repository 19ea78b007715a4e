"""GitHub annotations: workflow commands that put each finding on its line of the diff."""

from gradscope.facts import Finding, Location, Report, Summary
from gradscope.report import closing, sentences, trials
from gradscope.report.printable import clean, sentence
from gradscope.report.rendering import Options

NAME = "github"
FOR_PROGRAMS = True


def render(report: Report, options: Options) -> str:
    lines = [_finding(finding) for finding in report.findings]
    if report.verdict == "failed":
        end = report.trace.ending
        lines.append(_command("error", end.location, "gradscope", closing.ending(report)))
    elif words := closing.no_cause(report):
        lines.append(_command("error", None, "gradscope", words))
    elif words := closing.shortfall(report):
        lines.append(_command("notice", None, "gradscope", words))
    lines += [_command("notice", None, "gradscope", note) for note in closing.notes(report)]
    # The runner reads a command wherever a line begins with one: ours never begins with a name.
    lines.append(f"gradscope: {sentence(closing.summary(report))}")
    return "".join(f"{line}\n" for line in lines)


def render_all(summary: Summary, options: Options) -> str:
    texts = [render(report, options) for report in summary.reports]
    own = [_finding(finding) for finding in summary.findings]
    last = f"gradscope: {sentence(closing.of_all(summary))}"
    return "".join([*texts, *(f"{line}\n" for line in (*own, last))])


def _finding(finding: Finding) -> str:
    parts = [finding.message, finding.why]
    if fix := sentences.leading(finding):
        parts.append(f"help: {fix.title} ({fix.safety}; {trials.verdict(fix)})")
    title = f"{finding.rule} {finding.name}"
    level = {"error": "error", "warning": "warning", "note": "notice"}[finding.severity.value]
    return _command(level, finding.location, title, *parts)


def _command(level: str, location: Location | None, title: str, *parts: str) -> str:
    values: dict[str, object] = {}
    if location is not None:
        last = max(location.line, location.end_line)
        values = {"file": location.file, "line": location.line, "endLine": last}
        if location.line == last:  # the runner takes columns only within a line
            end = max(location.col, location.end_col)
            values |= {"col": location.col + 1, "endColumn": end + 1}
    values["title"] = title
    escapes = str.maketrans({":": "%3A", ",": "%2C"})
    listed = ",".join(f"{key}={_data(str(one)).translate(escapes)}" for key, one in values.items())
    return f"::{level} {listed}::" + "%0A".join(_data(sentence(part)) for part in parts)


def _data(text: str) -> str:
    return clean(text).replace("%", "%25")
