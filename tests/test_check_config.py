"""Lists of targets, thresholds and limits: what is read, and the place of every mistake."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from gradscope.check.cases import cases_of
from gradscope.check.settings import shown
from gradscope.check.whole import check, run
from gradscope.config import Config, load_config
from gradscope.config.json_schema import schema
from gradscope.config.keys import Thresholds, size
from gradscope.errors import GradscopeError
from gradscope.programs.choose import choose

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = schema()
SAMPLES = sorted((ROOT / "configs").glob("*.yaml"))

GOOD = """\
steps: 3
inputs:
  x: torch.zeros(3)
  y: torch.ones(3)
targets:
  - a.py:loss
  - name: other
    target: b.py
    steps: 5
    dtypes: [float32, autocast]
    inputs: {x: "torch.ones(3)"}
    thresholds: {max-grad-norm: 10}
    memory-limit: 2 GiB
"""


def written(folder: Path, text: str, name: str = "gradscope.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_target_sets_for_itself_what_the_file_sets_for_all(tmp_path):
    first, second = load_config(written(tmp_path, GOOD)).targets

    assert (first.name, first.target, first.steps) == ("a.py:loss", "a.py:loss", 3)
    assert (second.name, second.steps, second.dtypes) == ("other", 5, ("float32", "autocast"))
    assert {one.name: one.expression for one in second.inputs} == {
        "x": "torch.ones(3)",
        "y": "torch.ones(3)",
    }
    assert second.thresholds == Thresholds(max_grad_norm=10.0)
    assert second.memory_limit == 2 * 1024**3
    assert first.thresholds == Thresholds()


def test_each_target_runs_in_each_dtype(tmp_path):
    cases = cases_of(load_config(written(tmp_path, GOOD)))

    assert [case.shown for case in cases] == ["a.py:loss", "other [float32]", "other [autocast]"]


def test_what_is_wrong_with_a_target_is_told_with_its_place(tmp_path):
    file = written(
        tmp_path, "targets:\n  - {target: 'a.py:f', inputs: {x: 'torch.zeors(1)', y: 3}}\n"
    )
    (tmp_path / "a.py").write_text("def f(x): return x.sum()\n")

    (report,) = check(load_config(file), cases_of(load_config(file))).reports

    assert report.trace.ending.detail.startswith(f"{file}:2:33: inputs x cannot be evaluated: ")
    file.write_text(file.read_text().replace("zeors", "zeros"))
    (report,) = check(load_config(file), cases_of(load_config(file))).reports
    assert (
        report.trace.ending.detail == f"{file}:2:54: {tmp_path}/a.py:f takes no input y; it takes x"
    )


def test_a_file_without_targets_does_not_check_an_example(tmp_path):
    config = load_config(written(tmp_path, "steps: 3\n"))

    with pytest.raises(GradscopeError, match="names no target"):
        run(config)


def test_names_choose_and_the_command_line_goes_first(tmp_path):
    cases = cases_of(
        load_config(written(tmp_path, GOOD)).overridden(steps=1, dtypes=("float64",)), ["other"]
    )

    assert [(case.shown, case.config.steps) for case in cases] == [("other [float64]", 1)]


def test_a_name_that_nobody_has_is_said_with_the_nearest(tmp_path):
    with pytest.raises(GradscopeError, match="unknown target othr") as caught:
        cases_of(load_config(written(tmp_path, GOOD)), ["othr"])

    assert caught.value.help.startswith("did you mean other?")


def test_without_a_configuration_there_is_nothing_to_check():
    assert cases_of(Config()) == ()


def test_origins_are_shown(here):
    written(here, GOOD)

    text = shown(load_config().overridden(jobs=2), typed={"jobs"})

    lines = dict(re.findall(r"^([\w-]+): .*?  # (.*)$", text.split("\n\n")[0], re.MULTILINE))
    assert lines["steps"] == "gradscope.yaml:1:1"
    assert lines["jobs"] == "command line"
    assert lines["fail-on"] == "default"
    assert "# target other\n" in text
    assert re.search(r"^steps: 5 +# gradscope.yaml:9:5$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("targets: a.py\n", "1:1", "targets must be a list"),
        ("targets:\n  - 3\n", "2:5", "targets: an entry must be a target or keys, got 3"),
        ("targets:\n  - {name: a}\n", "2:5", "targets: an entry names no target"),
        ("targets:\n  - a.py\n  - {target: b.py, stepz: 3}\n", "3:20", "unknown key stepz"),
        ("targets:\n  - {target: b.py, steps: no}\n", "2:20", "steps must be a whole number"),
        ("targets:\n  - {target: b.py, jobs: 2}\n", "2:20", "jobs belongs to the whole file"),
        ("targets:\n  - a.py\n  - {name: a.py, target: b.py}\n", "3:6", "targets: two are called"),
        ("targets:\n  - {target: a, target: b}\n", "2:17", "target is given twice"),
        ("thresholds: 3\n", "1:1", "thresholds must be names with numbers, got int 3"),
        ("thresholds:\n  max-norm: 3\n", "2:3", "thresholds has an unknown key max-norm"),
        ("thresholds:\n  max-loss: hi\n", "2:3", "thresholds max-loss must be a number"),
        ("dtypes: [float23]\n", "1:1", "dtypes has an unknown dtype float23"),
        ("memory-limit: much\n", "1:1", "memory-limit must be a size such as 2 GiB"),
        (
            "inputs:\n  x: {range: [1, 0]}\n",
            "2:7",
            "inputs x: range must begin with the smaller number",
        ),
        ("inputs:\n  x: {range: [0, .inf]}\n", "2:7", "inputs x: range must end at finite"),
        ("inputs:\n  x: {shape: [2, -1]}\n", "2:7", "inputs x: shape must be a list of whole"),
        ("inputs:\n  x: {shape: [2], seed: yes}\n", "2:19", "inputs x: seed must be a whole"),
        ("inputs:\n  x: {dtype: flaot32}\n", "2:7", "inputs x: dtype has an unknown dtype"),
        ("inputs:\n  x: {values: [a]}\n", "2:7", "inputs x: values must be numbers in lists"),
        ("inputs:\n  x: [[1], [2, 3]]\n", "2:3", "inputs x: must be lists of one length"),
        ("inputs:\n  x: {values: [1], shape: [1]}\n", "2:20", "inputs x: has values and a shape"),
        ("inputs:\n  x: {values: [5], range: [0, 1]}\n", "2:7", "inputs x: values lie outside"),
        ("time-limit: .nan\n", "1:1", "time-limit must be a number of seconds above 0"),
        ("verify-time: 0\n", "1:1", "verify-time must be a number of seconds above 0"),
        ("thresholds: {max-grad-norm: -1}\n", "1:14", "thresholds max-grad-norm must be above 0"),
        ("steps: 1\n---\nsteps: 2\n", "2:1", "expected a single document in the stream"),
        ("inputs:\n  x: {nonempty: 3}\n", "2:7", "inputs x: nonempty must be true or false"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, text, place, says):
    path = written(tmp_path, text)

    with pytest.raises(GradscopeError, match=re.escape(f"{path}:{place}: {says}")):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (
            '[tool.gradscope]\n[[tool.gradscope.targets]]\ntarget = "a.py"\n'
            '[[tool.gradscope.targets]]\ntarget = "b.py"\nstepz = 3\n',
            "6:1",
            "unknown key stepz",
        ),
        ("[tool.gradscope]\n[[tool.gradscope.targets]]\nname = 'x'\n", "2:1", "targets: an entry"),
    ],
)
def test_a_mistake_in_a_table_of_pyproject(tmp_path, text, place, says):
    path = written(tmp_path, text, "pyproject.toml")

    with pytest.raises(GradscopeError, match=re.escape(f"{path}:{place}: {says}")):
        load_config(path)


def test_aliases_are_not_unfolded_for_ever(tmp_path):
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
        for old, new in zip("abcdefg", "bcdefgh", strict=True)
    )

    with pytest.raises(GradscopeError, match="more than 100,000 values"):
        load_config(written(tmp_path, text))


@pytest.mark.parametrize(
    ("words", "expected"),
    [("2 GiB", 2**31), ("512MB", 512_000_000), (4096, 4096), ("1.5 kib", 1536)],
)
def test_sizes(words, expected):
    assert size(words) == expected


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_schema_accepts_the_samples(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)
    assert load_config(path).targets


@pytest.mark.parametrize(
    "text",
    [
        "stepz: 3",
        "steps: 0",
        "dtypes: [float23]",
        "targets: a.py",
        "thresholds: {max-grad-norm: -1}",
        "thresholds: {max-grad-nrom: 1}",
        "inputs: {x: {shape: [-1]}}",
        "inputs: {x: {dtype: flaot32}}",
        "inputs: {x: {shap: [1]}}",
        "targets: [{target: a.py, jobs: 2}]",
    ],
)
def test_the_schema_refuses_what_we_refuse(tmp_path, text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), SCHEMA)
    with pytest.raises(GradscopeError):
        load_config(written(tmp_path, text + "\n"))


def test_trace_takes_the_first_of_the_list_and_each_by_its_name(tmp_path):
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b.py").write_text("")
    config = load_config(written(tmp_path, GOOD))

    first = choose(config)
    other = choose(config, "other")

    assert (first.target.name, other.target.name) == (f"{tmp_path}/a.py:loss", "b.py")
    assert first.remarks[0].startswith("target from ")


def test_what_an_entry_says_holds_for_its_target_and_the_command_line_goes_first(tmp_path):
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b.py").write_text("")
    listed = "targets:\n  - {target: a.py, steps: 3, name: a}\n  - {target: b.py, name: b}\n"
    config = load_config(written(tmp_path, f"steps: 9\n{listed}"))

    assert choose(config).config.steps == 3
    assert choose(config, "b").config.steps == 9
    assert choose(config.overridden(steps=5, device=None), "a").config.steps == 5


def test_the_limits_of_the_rules_are_thresholds_too(tmp_path):
    file = tmp_path / "gradscope.yaml"
    file.write_text("thresholds: {gradient-growth: 100, zero-passes: 5}\n")

    assert load_config(file).thresholds == Thresholds(gradient_growth=100.0, zero_passes=5.0)
    file.write_text("thresholds: {loss-growth: 0}\n")
    with pytest.raises(GradscopeError, match="loss-growth must be above 0, got int 0"):
        load_config(file)
