"""Any command line made of the real commands and options ends in 0, 1 or 2, without a traceback."""

from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradscope.cli import app, main

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TRACED = ("trace", "norms", "check", "fix")
HEALTHY = "import torch\n(torch.ones(2, requires_grad=True) * 2).sum().backward()\n"
FUNCTION = "import torch\n\ndef f(x=None):\n    return torch.ones(2, requires_grad=True).sum()\n"

TARGETS = r"""
ok.py fn.py:f fn.py: fn.py:nope fn.py:f:g :f : missing.py missing.py:f math:sqrt torch:zeros
torch.nn:Linear nope.mod:f clip_norm clip_nrom . / conf.yaml f é.py ~/x.py
"""
WORDS = r"""
-1 0 1 2 nan inf -inf 1e309 1e-5 json terminal html csv sarif error note x=1 x= = a=b=c -- - \
x=torch.zeros( ok.py conf.yaml missing.yaml . / /dev/null no/such/out.json é☃ json=r.json =r json=
--steps GS101 GS1 float16 autocast 2GiB -5GiB fn.py:f F.mse_loss torch.nn:Linear * ~ %s {x}
[bold]x[/bold] [/] module norm layers
"""
ODD = ["", " ", "a\nb", "x" * 5_000, "\udcff.py"]  # the last as bytes that are no text come in

targets = st.sampled_from([*TARGETS.split(), *ODD])
words = st.sampled_from([*WORDS.split(), *ODD])


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with options of its own, with and without the values that they want."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    options = [
        (spelling, getattr(option, "is_flag", False))
        for option in COMMANDS[name].params
        for spelling in option.opts
        if spelling.startswith("-") and spelling != "--write"
    ]
    given = [name, *draw(st.lists(targets, max_size=2))]
    for spelling, is_flag in (
        draw(st.lists(st.sampled_from(options), max_size=3)) if options else ()
    ):
        given += [spelling] if is_flag else [spelling, draw(words)]
    given += draw(st.lists(words, max_size=1))
    if name in TRACED:
        given += ["--time-limit", "20"]
    return given + ["--", *draw(st.lists(words, max_size=2))] * draw(st.booleans())


def check_line(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    code = main(line)
    out, err = capfd.readouterr()

    assert code in (0, 1, 2), err
    assert "internal error" not in err
    if "ok.py" not in line and "conf.yaml" not in line:  # programs have tracebacks of their own
        assert "Traceback" not in out + err
    if code == 2:
        assert err or out or "--output" in line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.py").write_text(HEALTHY)
    (tmp_path / "fn.py").write_text(FUNCTION)
    (tmp_path / "conf.yaml").write_text("targets: [ok.py, {name: f, target: 'fn.py:f'}]\n")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(line=lines())
def test_any_command_line_is_answered(line, folder, capfd):
    check_line(line, capfd)


@pytest.mark.slow
@settings(
    max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(line=lines())
def test_any_of_many_command_lines_is_answered(line, folder, capfd):
    check_line(line, capfd)
