"""pytest: a test fails with gradscope's report where a gradient that it computes is unhealthy.

    @pytest.mark.gradscope            # this test; options: select, ignore, fail_on, enabled
    def test_loss(gradscope): ...     # the same, by a fixture that can be asked
    pytest --gradscope                # every test

The test runs in this process and is not stopped: what was seen is judged once it is over. Settings
come from gradscope.yaml or [tool.gradscope], the marker's own go first. Fixes are shown as
patches that were not tried, since a test cannot be run again from here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradscope.config import Config
    from gradscope.facts import Finding, Report

_OPTIONS = ("select", "ignore", "fail_on", "enabled")
_WATCH = pytest.StashKey["Watch"]()
_CONFIG = pytest.StashKey["Config"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradscope", "gradient health")
    group.addoption(
        "--gradscope",
        action="store_true",
        help="fail every test whose backward passes are unhealthy",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "gradscope(select=(), ignore=(), fail_on='error', enabled=True): fail the test with a"
        " report where a gradient that it computes is unhealthy",
    )


class Watch:
    """What the `gradscope` fixture gives: the findings so far, and what to accept.

    def test_known(gradscope):
        loss(x).backward()
        assert [f.rule for f in gradscope.findings()] == ["GS102"]
        gradscope.accept("GS102")
    """

    def __init__(self, name: str, config: Config) -> None:
        from gradscope.record.observation import FullObservation

        self._name = name
        self._config = config
        self._accepted: tuple[str, ...] = ()
        self._observation = FullObservation()

    def __enter__(self) -> Watch:
        self._observation.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._observation.__exit__(*failure)

    def accept(self, *rules: str) -> None:
        """Let findings of these rules pass: codes, names, or families such as GS1."""
        self._accepted += rules

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the backward passes so far, but for what is accepted."""
        return self.report().findings

    def report(self) -> Report:
        """The report so far."""
        from gradscope.diagnose import diagnose
        from gradscope.facts import Ending, Report
        from gradscope.rules import rule_filter

        trace = self._observation.trace(self._name, Ending("finished"))
        wanted = rule_filter(replace(self._config, ignore=(*self._config.ignore, *self._accepted)))
        found = tuple(finding for finding in diagnose(trace) if wanted(finding))
        return Report(self._name, trace, found)

    def verdict(self) -> str:
        """The report as text where it fails the test, else nothing."""
        from gradscope.check.accepted import accepted_by
        from gradscope.repair import repaired
        from gradscope.report import render

        report = self.report()
        if not report.findings:
            return ""
        report = accepted_by(report, self._config)
        if not report.has(self._config.fail_on):
            return ""
        findings = repaired(report.trace, report.findings, _no_rerun, verify=False)
        return render("terminal", replace(report, findings=findings), width=100)


def _no_rerun(*_: object) -> Any:
    raise NotImplementedError("a test is run once")


@pytest.fixture
def gradscope(request: pytest.FixtureRequest) -> Watch:
    """Fails the test where its backward is unhealthy; ask it for findings, or accept some."""
    watch: Watch = request.node.stash.setdefault(_WATCH, _watch(request.node))
    return watch


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = item.stash.get(_WATCH, None) or (_watch(item) if _is_wanted(item) else None)
    if watch is None:
        return (yield)
    try:
        with watch:
            result = yield
    except (Exception, pytest.fail.Exception):
        if text := watch.verdict():
            item.add_report_section("call", "gradscope", text)
        raise
    if text := watch.verdict():
        pytest.fail(f"a gradient is unhealthy\n\n{text}", pytrace=False)
    return result


def _is_wanted(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("gradscope")
    if marker is None:
        return bool(item.config.getoption("--gradscope"))
    return bool(marker.kwargs.get("enabled", True))


def _watch(item: pytest.Item) -> Watch:
    marker = item.get_closest_marker("gradscope")
    given = marker.kwargs if marker else {}
    if unknown := sorted(set(given) - set(_OPTIONS)):
        known = ", ".join(_OPTIONS)
        pytest.fail(f"the mark gradscope has no {unknown[0]}: it has {known}", pytrace=False)
    return Watch(item.nodeid, _settings(item, given))


def _settings(item: pytest.Item, given: Mapping[str, Any]) -> Config:
    from gradscope.errors import GradscopeError
    from gradscope.facts import Severity
    from gradscope.rules import rule_filter

    try:
        config = _configured(item.config)
        if "select" in given:
            config = replace(config, select=_words(given["select"]))
        if "ignore" in given:
            config = replace(config, ignore=_words(given["ignore"]))
        if "fail_on" in given:
            config = replace(config, fail_on=Severity(given["fail_on"]))
        rule_filter(config)
    except (GradscopeError, ValueError) as error:
        pytest.fail(f"gradscope: {error}", pytrace=False)
    return config


def _configured(config: pytest.Config) -> Config:
    from gradscope.config import Config, find_config, load_config

    if _CONFIG not in config.stash:
        path = find_config(Path(config.rootpath))
        config.stash[_CONFIG] = load_config(path) if path else Config()
    return config.stash[_CONFIG]


def _words(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
