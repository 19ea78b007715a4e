"""What a search found, traced like any other run, and written as a test."""

import contextlib
import os
import re
import time
from dataclasses import replace
from typing import Any

from gradscope.check.cases import Case
from gradscope.facts import Finding, NotChecked, Report, Severity, plural
from gradscope.programs import Conditions, Function, Parts, Reference, Repeat
from gradscope.programs.overlay import Overlay, scratch_folder

SECONDS = 60.0  # for one target's search, within its time limit
PATIENCE = 10.0  # seconds for one edge input: the next ones are tried in a new process
MOST_TRACED = 12


def stress(case: Case, target: Function | Parts, report: Report) -> Report:
    """The report with what edge inputs break, each with a test that shows it."""
    from gradscope import pipeline

    config = replace(case.config, keep_going=False, every_step=True)
    known = {_spot(finding) for finding in report.findings}
    findings = []
    with scratch_folder(Repeat()) as scratch:
        tried, found, is_whole = searched(target, case, scratch)
    found.sort(key=lambda one: one.severity.rank)
    for one in found[:MOST_TRACED]:
        again = pipeline.trace(
            one.target, config, silent=True, precision=case.precision, accept=False
        )
        for finding in again.findings:
            key = _spot(finding)
            if finding.severity is Severity.ERROR and key not in known:
                known.add(key)
                findings.append(_as_stressed(finding, one))
    breaking = f"{len(found) or 'none'} of them {'breaks' if len(found) == 1 else 'break'} it"
    remarks = f"stress: {plural(tried, 'edge input')} tried, {breaking}"
    everything = sorted((*findings, *report.findings), key=lambda one: one.severity.rank)
    left_out = []
    if not is_whole:
        left_out.append(NotChecked(f"edge inputs after the first {tried}", "out of time"))
    if len(found) > MOST_TRACED:
        which = plural(len(found) - MOST_TRACED, "edge input that breaks", "edge inputs that break")
        left_out.append(NotChecked(f"where {which} it", f"at most {MOST_TRACED} are traced"))
    return replace(
        report,
        findings=tuple(everything),
        remarks=(*report.remarks, remarks),
        not_searched=(*report.not_searched, *left_out),
    )


def _spot(finding: Finding) -> tuple[object, ...]:
    """Several edges that break one line in one way are one finding."""
    return finding.rule, str(finding.location)


def searched(target: Function | Parts, case: Case, scratch: str) -> tuple[int, list[Any], bool]:
    """How many edge inputs were tried, what they found, and whether there are no more. One that
    hangs or dies costs itself alone. What they write goes to the folder `scratch`."""
    from gradscope.programs.process import beside

    deadline = time.monotonic() + min(SECONDS, case.config.time_limit or SECONDS)
    start = 0
    found: dict[int, Any] = {}
    while time.monotonic() < deadline:
        process, ours = beside(_work, target, case, start, scratch)
        at = start - 1
        whole = False
        patience = SECONDS  # nothing is tried before the first message
        try:
            while ours.poll(max(0.0, min(patience, deadline - time.monotonic()))):
                number, one = ours.recv()
                patience = PATIENCE
                if number is None:
                    whole = True
                    break
                at = number
                if one is not None:
                    found[number] = one
        except (EOFError, OSError):
            pass  # it died at edge `at`
        finally:
            process.kill()
            process.join()
            ours.close()
        if whole or at < start:
            return at + 1, list(found.values()), whole
        start = at + 1
    return start, list(found.values()), False


def _work(target: Function | Parts, case: Case, start: int, scratch: str, connection: Any) -> None:
    """The searching process. It counts all edges, and tries those from `start` on."""
    from gradscope.check.stress.trial import Trial
    from gradscope.programs import redirect
    from gradscope.record.forking import be_silent

    be_silent()
    redirect.install(Overlay(scratch))  # a function that writes is called hundreds of times
    config = case.config
    conditions = Conditions(case.precision, config.device, config.memory_limit)
    with contextlib.suppress(Exception):
        conditions.apply()
        trial = Trial(target, conditions)
        conditions.enter_autocast()
        number = start - 1
        for number, edge in enumerate(trial.edges()):
            if number >= start:
                connection.send((number, None))
                for one in trial.found(edge):
                    connection.send((number, one))
        connection.send((None, None))


def _as_stressed(finding: Finding, found: Any) -> Finding:
    text = test_of(found.target, found.words)
    return replace(
        finding,
        severity=found.severity,
        message=f"{finding.message}, for {found.words}",
        numbers=(f"found by stress: {found.words}; as a test:\n{text}", *finding.numbers),
        evidence={**finding.evidence, "stress": found.words, "test": text},
    )


def test_of(target: Function | Parts, words: str) -> str:
    """A test that fails as long as the target breaks at its inputs, which `words` describe."""
    name = re.sub(r"\W+", "_", f"{target.name.rpartition(':')[2]} at {words}").strip("_")
    if isinstance(target, Function):
        given = {"target": repr(_shown(target.reference))}
    else:
        parts = {"model": target.model, "loss": target.loss, "batch": target.batch}
        given = {key: repr(_shown(part)) for key, part in parts.items() if part is not None}
    if target.inputs:
        given["inputs"] = repr({one.name: one.expression for one in target.inputs})
    arguments = "".join(f"        {key}={text},\n" for key, text in given.items())
    return (
        f"import gradscope\n\n\ndef test_{name}():\n    report = gradscope.trace(\n{arguments}"
        '        verify=False,\n    )\n    assert report.verdict == "healthy", str(report)\n'
    )


test_of.__test__ = False  # type: ignore[attr-defined]  # pytest collects by name


def _shown(reference: Reference) -> str:
    where = reference.where
    if where is None:
        return reference.expression
    where = os.path.relpath(where) if where.endswith(".py") else where
    return f"{where}:{reference.expression}"
