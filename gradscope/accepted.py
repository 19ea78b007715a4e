"""What a project has accepted: `# gradscope: ignore[...]` comments and the baseline file.

The baseline holds fingerprints, which do not change when lines move; a finding in it is left out
of the report, and counted in a remark.
"""

import io
import json
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gradscope.config import Config
from gradscope.config.documents import text_of
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError, did_you_mean
from gradscope.facts import Finding, Location, Report
from gradscope.report import Sources
from gradscope.report.sarif import fingerprints
from gradscope.rules import RULES
from gradscope.rules.causes.unused_ignore import UnusedIgnore
from gradscope.source import lines
from gradscope.source.text import NO_TEXTS, Texts
from gradscope.writing import write_whole

VERSION = "gradscope-baseline/1"
LARGEST = 16 * 1024**2  # bytes of a baseline: some 60,000 findings

_REMARK = re.compile(r"#\s*gradscope:\s*ignore\b\s*(?:\[(?P<rules>[^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment: findings of `rules` (all, where empty) at its line are accepted.

    `line` is 1-based, `col` and `end_col` 0-based. A comment that stands alone on its line is
    about the next line of code.
    """

    file: str
    line: int
    col: int
    end_col: int
    rules: tuple[str, ...]
    about: int


def without_ignored(
    reports: Iterable[Report],
    files: Iterable[str],
    *,
    everything: bool = True,
    read: Sources = lines,
) -> tuple[tuple[Report, ...], tuple[Finding, ...]]:
    """The reports without what comments accept, and a warning for each comment without use.

    `files` are the targets' own sources; those that findings lie in are looked through too.
    `everything` is False where not all targets ran: a comment may be about one of the others.
    """
    reports = tuple(reports)
    places = [one.location.file for report in reports for one in report.findings if one.location]
    found = [one for file in dict.fromkeys((*files, *places)) for one in ignores(file, read(file))]
    used: set[Ignore] = set()
    kept = []
    for report in reports:
        left = []
        for finding in report.findings:
            accepting = [one for one in found if _accepts(one, finding)]
            used.update(accepting)
            if not accepting:
                left.append(finding)
        kept.append(_left(report, left, "accepted by a comment"))
    # A run that did not get to its end says nothing about the lines that it did not reach.
    cut_short = {"failed", "incomplete"}
    whole = everything and cut_short.isdisjoint(report.verdict for report in reports)
    return tuple(kept), tuple(_warnings(found, used, whole))


def accepted_by(report: Report, config: Config, texts: Texts = NO_TEXTS) -> Report:
    """What is left of one run's report. It does not tell which comments are of no use any more:
    only a whole check does. A baseline that cannot be read is a remark, and the report stays.
    """
    read = partial(lines, texts=texts)
    (report,), _ = without_ignored((report,), (), read=read)
    if config.baseline is None or not report.findings:
        return report
    try:
        (report,) = without_known((report,), config.folder / config.baseline, read)
    except GradscopeError as error:
        return replace(report, remarks=(*report.remarks, f"no baseline was applied: {error}"))
    return report


def _accepts(comment: Ignore, finding: Finding) -> bool:
    at = finding.location
    if at is None or at.file != comment.file or not at.line <= comment.about <= at.end_line:
        return False
    return not comment.rules or any(_stands_for(w, finding.rule) for w in comment.rules)


def _stands_for(word: str, code: str) -> bool:
    """A code, a family of codes ("GS1") or a name."""
    return code.startswith(word.upper()) or RULES[code].name == word.lower()


def _warnings(found: list[Ignore], used: set[Ignore], whole: bool) -> Iterator[Finding]:
    rule = UnusedIgnore()
    known = [name for one in RULES.values() for name in (one.code, one.name)]
    for comment in found:
        place = Location(
            comment.file, comment.line, comment.col, comment.line, comment.end_col, "<module>"
        )
        if wrong := [w for w in comment.rules if not any(_stands_for(w, code) for code in RULES)]:
            hint = did_you_mean(wrong[0], known, alike=0.4)
            words = "; ".join(filter(None, (f"the comment names no rule: {wrong[0]}", hint)))
            yield rule.report(place, words, "It accepts nothing.")
        elif comment not in used and whole:
            rules = ", ".join(comment.rules) or "anything"
            yield rule.report(
                place,
                f"nothing is left to ignore here ({rules})",
                "No finding of this check lies on that line.",
            )


def read_baseline(path: Path) -> frozenset[str]:
    """The fingerprints of accepted findings.

    Raises GradscopeError where the file cannot be read or is not a baseline.
    """
    try:
        document = json.loads(text_of(path, LARGEST))
        if document["schema"] != VERSION:
            raise GradscopeError(f"{path} is of another version: {document['schema']}")
        return frozenset(str(one["fingerprint"]) for one in document["accepted"])
    except FileNotFoundError:
        raise GradscopeError(
            f"there is no baseline {path}", help="gradscope check --write-baseline makes it"
        ) from None
    except OSError as error:
        raise GradscopeError(f"{path} cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise GradscopeError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from None
    except (TypeError, KeyError, UnicodeDecodeError, RecursionError):
        raise GradscopeError(
            f"{path} is not a baseline", help="gradscope check --write-baseline makes one"
        ) from None


def write_baseline(path: Path, reports: Iterable[Report]) -> int:
    """Accept all that was found; how many that are."""
    accepted = {}
    for report in reports:
        for finding, digest in zip(report.findings, _prints(report, path), strict=True):
            place = finding.location
            accepted[digest] = {
                "fingerprint": digest,
                "rule": finding.rule,
                "file": _from(path, place.file) if place else "",
                "message": finding.message,
            }
    listed = sorted(accepted.values(), key=lambda one: (one["file"], one["rule"], one["message"]))
    text = json.dumps({"schema": VERSION, "accepted": listed}, indent=2) + "\n"
    write_whole(path, text)
    return len(accepted)


def without_known(
    reports: Iterable[Report], path: Path, read: Sources = lines
) -> tuple[Report, ...]:
    """The reports without what the baseline accepts.

    Raises GradscopeError where the file cannot be read or is not a baseline.
    """
    known = read_baseline(path)
    kept = []
    for report in reports:
        left = [
            finding
            for finding, digest in zip(report.findings, _prints(report, path, read), strict=True)
            if digest not in known
        ]
        kept.append(_left(report, left, "in the baseline"))
    return tuple(kept)


def _prints(report: Report, baseline: Path, read: Sources = lines) -> list[str]:
    """Fingerprints that are the same from whichever folder the check is started."""
    return fingerprints(report.findings, read, named=lambda file: _from(baseline, file))


def _from(baseline: Path, file: str) -> str:
    return Path(os.path.relpath(file, baseline.absolute().parent)).as_posix()


def _left(report: Report, findings: list[Finding], why: str) -> Report:
    """The report with these findings alone."""
    gone = [finding for finding in report.findings if all(finding is not one for one in findings)]
    return replace(report, findings=tuple(findings)).without(gone, why)


def ignores(file: str, lines: Sequence[str]) -> Iterator[Ignore]:
    """The comments of a file, nothing where it is no Python."""
    if not any("gradscope" in line for line in lines):
        return
    text = "\n".join(lines) + "\n"
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (found := _REMARK.search(token.string)):
                line, col = token.start
                alone = not lines[line - 1][:col].strip()
                words = [word.strip() for word in (found["rules"] or "").split(",")]
                yield Ignore(
                    file,
                    line,
                    col,
                    token.end[1],
                    tuple(filter(None, words)),
                    _next_code(lines, line) if alone else line,
                )
    except (tokenize.TokenError, SyntaxError):
        return


def _next_code(lines: Sequence[str], line: int) -> int:
    numbered = ((number, text.strip()) for number, text in enumerate(lines[line:], line + 1))
    return next((number for number, text in numbered if text and text[0] != "#"), line)
