"""A trace in a file: it comes back as it was, runs nothing, and is judged without its program."""

import json
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from conftest import Command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_cases import failed, full, healthy, hostile

from gradscope import pipeline, saved
from gradscope.config import Config
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Trace
from gradscope.programs.choose import choose
from gradscope.saved import load, read, save, written

LOSS = """\
import torch

x = torch.tensor([0.0, 0.25], requires_grad=True)
torch.where(x > 0, x ** 0.5, 0.0).sum().backward()
"""
EXAMPLES = ["gamma_mask", "custom_backward", "vanishing", "half_overflow", "gamma_mask_fixed"]
REPORTS = {one.__name__: one() for one in (full, healthy, failed, hostile)}
WHOLE = written(REPORTS["full"].trace)


def values(hint: Any, depth: int = 3) -> st.SearchStrategy[Any]:
    """Any value of a field's type; down to `depth` facts below one another."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        simple = [one for one in of if depth or one is NoneType] or of
        return st.one_of([values(one, depth) for one in simple])
    if origin is tuple and of[1:] == (...,):
        return st.lists(values(of[0], depth), max_size=2 if depth else 0).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(one, depth) for one in of))
    if hint is object:
        plain = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.none())
        return plain | st.lists(plain, max_size=2) | st.tuples(plain)
    if is_dataclass(hint) and isinstance(hint, type):
        types = get_type_hints(hint)
        asked = [
            one.name
            for one in fields(hint)
            if depth > 0 or (one.default is MISSING and one.default_factory is MISSING)
        ]
        below = {name: st.deferred(lambda n=name: values(types[n], depth - 1)) for name in asked}
        return st.builds(hint, **below)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    plain_types: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(),
        float: st.floats(allow_nan=True, allow_infinity=True),
        bool: st.booleans(),
        str: st.text(),
        NoneType: st.none(),
    }
    return plain_types[hint]


@given(values(Trace))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_any_trace_comes_back_as_it_was(trace):
    # By text: a NaN is not equal to itself, and 0.0 is not -0.0.
    assert repr(read(written(trace)).trace) == repr(trace)


@pytest.mark.parametrize("name", REPORTS)
def test_the_traces_of_reports_come_back_as_they_were(name):
    trace = REPORTS[name].trace

    assert repr(read(written(trace)).trace) == repr(trace)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_trace_of_a_run_is_judged_as_the_run_was(name, tmp_path):
    file = tmp_path / "run.json"
    target = choose(Config(), name).target
    config = Config(verify=False)

    report = pipeline.trace(target, config, silent=True, keep=partial(save, path=file))
    again = pipeline.judge_again(load(file), config)

    assert [(one.rule, one.location, one.message) for one in again.findings] == [
        (one.rule, one.location, one.message) for one in report.findings
    ]
    assert again.verdict == report.verdict
    patches = [[fix.patch for fix in one.fixes] for one in report.findings]
    assert [[fix.patch for fix in one.fixes] for one in again.findings] == patches


IN_SIGHT = """\
import torch

torch.manual_seed(0)
scale, layer = torch.nn.Parameter(torch.ones(3)), torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(3):
    loss = layer(torch.randn(8, 3) * scale).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_parameter_in_sight_of_an_optimizer_comes_back(tmp_path):
    (tmp_path / "sight.py").write_text(IN_SIGHT)
    target = choose(Config(), str(tmp_path / "sight.py")).target
    file = tmp_path / "run.json"
    pipeline.trace(target, Config(verify=False), silent=True, keep=partial(save, path=file))

    usages = load(file).trace.magnitudes.usages
    holders = [holder for one in usages for scope in one.scopes for holder in scope.holders]
    assert [(one.text, one.held, one.bare) for one in holders if one.bare] == [("scale", 0, True)]


def saved_run(gradscope: Command, folder: Path) -> Path:
    (folder / "loss.py").write_text(LOSS)
    assert gradscope("trace", "loss.py", "--save", "run.json", "-q").returncode == 1
    return folder / "run.json"


@pytest.mark.long
def test_report_prints_what_trace_printed_but_for_the_tries(gradscope, tmp_path):
    saved_run(gradscope, tmp_path)

    (first,) = json.loads(gradscope("trace", "loss.py", "--format", "json").stdout)["findings"]
    done = gradscope("report", "run.json", "--format", "json")
    (again,) = json.loads(done.stdout)["findings"]

    assert done.returncode == ExitCode.FINDINGS
    tried, fix = first.pop("fixes")[0], again.pop("fixes")[0]
    assert again == first
    assert fix["patch"] == tried["patch"]
    assert (tried["verified"], fix["verified"]) == (True, None)
    assert fix["verdict"].endswith("a saved trace cannot be run")


@pytest.mark.long
def test_report_takes_the_options_of_trace(gradscope, tmp_path):
    saved_run(gradscope, tmp_path)

    ignored = gradscope("report", "run.json", "--ignore", "GS101")
    written_to = gradscope("report", "run.json", "--format", "sarif", "-o", "out.sarif")
    forgiven = gradscope("report", "run.json", "--exit-zero", "-q")

    assert ignored.returncode == 0 and "1 finding left out" in ignored.stdout
    assert written_to.returncode == 1 and written_to.stdout == ""
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"]
    assert forgiven.returncode == 0


def test_source_that_changed_is_neither_shown_nor_repaired(gradscope, tmp_path):
    saved_run(gradscope, tmp_path)
    (tmp_path / "loss.py").write_text("another = 'program'\n" * 9)

    done = gradscope("report", "run.json")

    assert done.returncode == ExitCode.FINDINGS
    assert "loss.py is not as it was when it ran" in " ".join(done.stdout.split())
    assert "another" not in done.stdout
    assert "GS101" in done.stdout


def test_nothing_is_run_and_torch_is_not_imported(gradscope, tmp_path):
    saved_run(gradscope, tmp_path)
    program = (
        "import sys\n"
        "from gradscope.cli import main\n"
        "main(['report', 'run.json'])\n"
        "print('torch' in sys.modules, file=sys.stderr)\n"
    )
    root = Path(__file__).resolve().parent.parent
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "GS101" in run.stdout
    assert run.stderr.strip() == "False"


def document(**changed: object) -> str:
    return json.dumps({**json.loads(written(Trace("t"))), **changed})


FACT = {"is": "Trace", "target": "t"}
BAD = {
    "nothing": "",
    "cut off": WHOLE[:-40],
    "a report": json.dumps({"schema": "gradscope-report/1", "findings": []}),
    "another version": document(schema="gradscope-trace/2"),
    "a list": "[1, 2]",
    "no facts": document(facts=[]),
    "a forward reference": document(facts=[{**FACT, "ending": {"fact": 1}}]),
    "a reference from the end": document(trace={"fact": -1}),
    "an unknown kind": document(facts=[{"is": "Popen", "args": "ls"}]),
    "an unknown enum": document(facts=[{**FACT, "events": {"enum": ["os", "system"]}}]),
    "an unknown field": document(facts=[{**FACT, "__class__": "object"}]),
    "a field of another type": document(facts=[{**FACT, "steps": "many"}]),
    "a missing field": document(facts=[{"is": "Trace"}]),
    "a trace that is none": document(trace=3),
    "files that are none": document(files=[1]),
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_told_in_a_line(what, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(BAD[what])

    with pytest.raises(GradscopeError, match=r"run\.json is not a saved trace: ") as told:
        load(file)

    assert "\n" not in str(told.value)
    assert "--save" in told.value.help


def test_other_bad_files_are_told_in_a_line_too(tmp_path, monkeypatch, gradscope):
    (tmp_path / "bytes.json").write_bytes(b"\x80\x04\x95")
    with pytest.raises(GradscopeError, match="it is not text"):
        load(tmp_path / "bytes.json")
    with pytest.raises(GradscopeError, match="cannot be read: Is a directory"):
        load(tmp_path)
    save(Trace("t"), tmp_path / "large.json")
    monkeypatch.setattr(saved, "LARGEST", 10)
    with pytest.raises(GradscopeError, match="is larger than"):
        load(tmp_path / "large.json")

    done = gradscope("report", "missing.json")
    assert done.returncode == ExitCode.UNUSABLE
    assert done.stderr.startswith("gradscope: error: missing.json cannot be read")


def test_a_place_that_takes_no_file_is_told_before_the_run(gradscope, tmp_path):
    (tmp_path / "loss.py").write_text("print('it ran')\n")

    done = gradscope("trace", "loss.py", "--save", "missing/run.json")

    assert done.returncode == ExitCode.UNUSABLE
    assert "--save missing/run.json lies in a folder that does not exist" in done.stderr
    assert "it ran" not in done.stdout


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_changed_file_is_read_or_refused(data):
    start = data.draw(st.integers(0, len(WHOLE) - 1))
    length = data.draw(st.integers(0, 8))
    put = data.draw(st.sampled_from(["", "0", "-1", "null", '"x"', "[]", "{}", "1e999", "\\"]))

    try:
        found = read(WHOLE[:start] + put + WHOLE[start + length :])
    except saved.Unfit:
        return
    assert isinstance(found.trace, Trace)
