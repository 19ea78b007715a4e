"""The configuration: what is read, where it is found, and the place of every mistake."""

import re
from pathlib import Path

import pytest

from gradscope.config import Config, Input, find_config, load_config
from gradscope.errors import GradscopeError
from gradscope.facts import Severity


def yaml(folder: Path, text: str) -> Path:
    path = folder / "gradscope.yaml"
    path.write_text(text)
    return path


def test_everything_can_be_said(tmp_path):
    path = yaml(
        tmp_path,
        """
target: train.py
args: [--lr, 0.1]
steps: 7
keep-going: true
verify: false
time-limit: 2
fail-on: warning
select: [GS1]
ignore: masked-branch
inputs:
  x: torch.zeros(3)
  n: 4
""",
    )

    config = load_config(path)

    assert config == Config(
        path=path,
        target="train.py",
        args=("--lr", "0.1"),
        steps=7,
        keep_going=True,
        verify=False,
        time_limit=2.0,
        fail_on=Severity.WARNING,
        select=("GS1",),
        ignore=("masked-branch",),
        inputs=(
            Input("x", "torch.zeros(3)", optional=True),
            Input("n", "4", optional=True),
        ),
    )


def test_an_empty_file_is_the_defaults(tmp_path):
    path = yaml(tmp_path, "# nothing yet\n")

    assert load_config(path) == Config(path=path)


@pytest.mark.parametrize(
    ("spec", "expression", "requires_grad"),
    [
        ("[1, 2.5]", "torch.tensor([1, 2.5])", None),
        ("{values: [1, 2], dtype: float64}", "torch.tensor([1, 2], dtype=torch.float64)", None),
        ("{shape: [2, 3], dtype: bfloat16}", "torch.randn((2, 3)).to(torch.bfloat16)", None),
        (
            "{shape: [4], range: [0, 9], dtype: int64}",
            "torch.randint(0, 9 + 1, (4,)).to(torch.int64)",
            None,
        ),
        (
            "{shape: [4], range: [-1, 1], seed: 3, requires_grad: false}",
            "(torch.rand((4,), generator=torch.Generator().manual_seed(3)) * (1 - -1) + -1)"
            ".to(torch.float32)",
            False,
        ),
    ],
)
def test_a_described_tensor_is_an_expression(tmp_path, spec, expression, requires_grad):
    config = load_config(yaml(tmp_path, f"inputs:\n  x: {spec}\n"))

    (given,) = config.inputs
    assert given.optional
    assert (given.name, given.expression, given.requires_grad) == ("x", expression, requires_grad)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("stepz: 3\n", "1:1", "unknown key stepz"),
        ("target: a.py\n\nfail_on: error\n", "3:1", "unknown key fail_on"),
        ("steps: many\n", "1:1", "steps must be a whole number from 1, got str 'many'"),
        ("steps: 0\n", "1:1", "steps must be a whole number from 1, got int 0"),
        ("steps: true\n", "1:1", "steps must be a whole number from 1, got bool True"),
        ("fail-on: bad\n", "1:1", "fail-on must be one of error, warning, note, got str 'bad'"),
        ("target: [a.py]\n", "1:1", "target must be text, got list ['a.py']"),
        ("inputs:\n  x: {shpae: [3]}\n", "2:7", "inputs x: has an unknown key shpae"),
        (
            "inputs:\n  x: {shape: 3}\n",
            "2:7",
            "inputs x: shape must be a list of whole numbers from 0, got int 3",
        ),
        ("inputs:\n  x: {seed: a}\n", "2:7", "inputs x: seed must be a whole number, got str 'a'"),
        ("inputs:\n  1x: 3\n", "2:3", "inputs has '1x', which is no Python name"),
        ("steps: [1\nargs: 2\n", "2:5", "expected ',' or ']', but got ':'"),
        ("- a\n- b\n", "1:1", "expected keys with values"),
        ("target: a.py\ntarget: b.py\n", "2:1", "target is given twice"),
        ("x: !!python/object/apply:os.system [ls]\n", "1:4", "could not determine a constructor"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, text, place, says):
    path = yaml(tmp_path, text)

    with pytest.raises(GradscopeError, match=re.escape(f"{path}:{place}: {says}")):
        load_config(path)


def test_an_unknown_key_names_the_nearest(tmp_path):
    with pytest.raises(GradscopeError) as caught:
        load_config(yaml(tmp_path, "tagret: a.py\n"))

    assert caught.value.help == "did you mean target?"


def test_brackets_without_end_are_a_message(tmp_path):
    with pytest.raises(GradscopeError, match="nest too deeply"):
        load_config(yaml(tmp_path, "[" * 100_000))


def test_the_nearest_file_upwards_is_found(tmp_path):
    path = yaml(tmp_path, "steps: 3\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    assert find_config(below) == path


def test_pyproject_counts_only_with_our_table(tmp_path):
    project = tmp_path / "pyproject.toml"
    below = tmp_path / "src"
    below.mkdir()
    project.write_text('[project]\nname = "x"\n')
    assert find_config(below) != project

    project.write_text(
        '[tool.gradscope]\nsteps = 5\n[tool.gradscope.inputs]\nx = "torch.ones(2)"\n'
    )

    assert find_config(below) == project
    config = load_config(project)
    assert (config.steps, config.inputs) == (5, (Input("x", "torch.ones(2)", optional=True),))


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("[tool.gradscope]\nsteps = 5\nstepz = 5\n", "3:1", "unknown key stepz"),
        ("[tool.gradscope]\nsteps = \n", "2:9", "Invalid value"),
    ],
)
def test_a_mistake_in_pyproject_has_its_place_too(tmp_path, text, place, says):
    project = tmp_path / "pyproject.toml"
    project.write_text(text)

    with pytest.raises(GradscopeError, match=re.escape(f"{project}:{place}: {says}")):
        load_config(project)


def test_a_missing_configuration_is_said(tmp_path):
    with pytest.raises(GradscopeError, match="there is no configuration"):
        load_config(tmp_path / "no.yaml")
