"""pytest: a test fails with gradscope's report where a gradient that it computes is unhealthy.

    @pytest.mark.gradscope            # this test; options: select, ignore, fail_on, enabled
    def test_loss(gradscope): ...     # the same, by a fixture that can be asked
    pytest --gradscope                # every test

The test runs in this process and is not stopped: what was seen is judged once it is over. Settings
come from gradscope.yaml or [tool.gradscope], the marker's own go first. Fixes are tried by running
the test again, in a copy of the process (Linux, no GPU); fixtures are as the first run left them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradscope.config import Config
    from gradscope.integrations.watch import Watch

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


@pytest.fixture
def gradscope(request: pytest.FixtureRequest) -> Watch:
    """Fails the test where its backward is unhealthy; ask it for findings, or accept some:

    def test_known(gradscope):
        loss(x).backward()
        assert [f.rule for f in gradscope.findings()] == ["GS102"]
        gradscope.accept("GS102")
    """
    watch: Watch = request.node.stash.setdefault(_WATCH, _watch(request.node))
    return watch


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = item.stash.get(_WATCH, None) or (_watch(item) if _is_wanted(item) else None)
    if watch is None:
        return (yield)
    watch.repeat_by(partial(_once_more, item))
    try:
        with watch:
            result = yield
    except (Exception, pytest.fail.Exception):
        if text := _verdict(watch):
            item.add_report_section("call", "gradscope", text)
        raise
    if text := _verdict(watch):
        pytest.fail(f"a gradient is unhealthy\n\n{text}", pytrace=False)
    return result


def _once_more(item: pytest.Item) -> None:
    with suppress(Exception, pytest.fail.Exception):
        item.runtest()


def _verdict(watch: Watch) -> str:
    """The report as text where it fails the test, else nothing."""
    from gradscope.report import FORMATS, Options

    report = watch.report()
    if not report.fails(watch.config.fail_on):
        return ""
    return FORMATS["terminal"].render(report, Options(width=100))


def _is_wanted(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("gradscope")
    if marker is None:
        return bool(item.config.getoption("--gradscope"))
    return bool(marker.kwargs.get("enabled", True))


def _watch(item: pytest.Item) -> Watch:
    from gradscope.integrations.watch import Watch

    marker = item.get_closest_marker("gradscope")
    given = marker.kwargs if marker else {}
    if unknown := sorted(set(given) - set(_OPTIONS)):
        known = ", ".join(_OPTIONS)
        pytest.fail(f"the mark gradscope has no {unknown[0]}: it has {known}", pytrace=False)
    return Watch(item.nodeid, _settings(item, given))


def _settings(item: pytest.Item, given: Mapping[str, Any]) -> Config:
    from gradscope.config.scalars import words
    from gradscope.errors import GradscopeError
    from gradscope.facts import Severity
    from gradscope.rules import rule_filter

    try:
        config = _configured(item.config).overridden(
            select=words(given.get("select")),
            ignore=words(given.get("ignore")),
            fail_on=Severity(given["fail_on"]) if "fail_on" in given else None,
        )
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
