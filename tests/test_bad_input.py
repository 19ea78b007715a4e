"""What cannot be run is said in one clear line, with exit code 2 and no traceback of ours."""

import marshal
import os
import py_compile
import textwrap
from pathlib import Path

import pytest

from gradscope.cli import main

HEALTHY = """
import torch
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
"""
LOSSES = """
import torch

def loss(x, scale):
    return (x * scale).sum()

def vector(x):
    return x * 2

def detached(x):
    return x.detach().sum()

def nothing(x):
    return {"output": x}

PI = 3.14
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "train.py").write_text(HEALTHY)
    (tmp_path / "losses.py").write_text(LOSSES)
    return tmp_path


@pytest.fixture
def refused(folder, capfd):
    """Runs `gradscope trace ...` and returns the lines of its complaint."""

    def run(*words: str) -> list[str]:
        code = main(["trace", *words])
        out, err = capfd.readouterr()
        assert (code, out) == (2, "")
        assert "gradscope/" not in err  # no frame of ours
        first, *rest = err.splitlines()
        assert first.startswith("gradscope: error: ")
        return [first.removeprefix("gradscope: error: "), *rest]

    return run


def write(name: str, text: str) -> None:
    Path(name).write_text(textwrap.dedent(text))


def test_a_program_that_trains_in_processes_of_its_own(refused):
    write(
        "spawned.py",
        "import multiprocessing, torch\n"
        "def train():\n"
        "    torch.ones(3, requires_grad=True).sum().backward()\n"
        "context = multiprocessing.get_context('fork')\n"
        "for rank in range(2):\n"
        "    worker = context.Process(target=train, name=f'rank-{rank}')\n"
        "    worker.start()\n"
        "    worker.join()\n",
    )

    assert refused("spawned.py")[0] == (
        "no backward ran in spawned.py itself: it started 2 processes (rank-0, rank-1), "
        "and what runs in them is not observed"
    )


@pytest.mark.parametrize(
    ("words", "message", "help"),
    [
        (["trian.py"], "there is no file trian.py", "did you mean train.py?"),
        (["no/train.py"], "no/train.py: there is no folder no", "check the path"),
        (["lossses.py:loss"], "there is no file lossses.py", "did you mean losses.py?"),
        (["."], ". is a directory", "name the script in it, or FILE.py:FUNCTION"),
        (["train.py", "--steps", "0"], "Invalid value for '--steps'",
         "gradscope trace --help shows its options"),
        (["train.py", "--lr", "3"], "No such option: --lr",
         "the program's own arguments follow after --: gradscope trace FILE.py -- --lr 1"),
        (["train.py", "3"], "Got unexpected extra argument",
         "the program's own arguments follow after --: gradscope trace FILE.py -- --lr 1"),
        (["train.py", "--format", "xml"], "unknown format xml", ""),
        (["train.py", "--output", "."], "--output . is a directory", "name a file in it"),
        (["train.py", "--output", "no/r.json"], "--output no/r.json lies in a folder that",
         "mkdir -p no"),
        (["train.py", "--config", "no.yaml"], "there is no configuration no.yaml", ""),
        (["train.py", "--input", "x"], "--input x is not NAME=EXPR", ""),
        (["train.py", "--input", "x=1"], "train.py is a script, which takes no --input", ""),
        (["losses.py:loss", "--", "3"], "losses.py:loss takes no arguments of its own", ""),
        (["--model", "losses.py:loss"], "a model, a loss and a batch belong together", ""),
    ],
)  # fmt: skip
def test_the_command_line(refused, words, message, help):
    first, *rest = refused(*words)

    assert first.startswith(message)
    assert not help or rest == [f"help: {help}"]


def test_an_unknown_example_names_the_nearest(refused):
    first, help = refused("gama_mask")

    assert first == "gama_mask is not a file, a module or a built-in example"
    assert help.startswith("help: did you mean gamma_mask")


def test_a_module_is_named_without_an_option(refused):
    assert refused("-m", "train")[1] == (
        "help: a module is named without it: gradscope trace package.module"
    )


def test_a_program_in_the_place_of_a_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write("train.py", "pass\n")

    assert main(["train.py", "--steps", "3"]) == 2

    help = capsys.readouterr().err.splitlines()[-1]
    assert help == "help: what to do with it comes first: gradscope trace train.py"


def test_a_syntax_error_has_its_place(refused):
    write("broken.py", "import torch\ndef f(:\n    pass\n")

    lines = refused("broken.py")

    assert lines[0] == "broken.py:2:7: invalid syntax"
    assert "    def f(:" in lines


def test_a_failing_import_shows_the_users_frames_alone(refused):
    write("inner.py", "import a_module_that_nobody_has\n")
    write("outer.py", "import torch\nimport inner\n")

    lines = refused("outer.py")

    assert lines[0] == "outer.py could not be imported: No module named 'a_module_that_nobody_has'"
    frames = [line.strip().split(", ")[0] for line in lines if line.startswith("  File")]
    assert frames == [f'File "{Path(name).resolve()}"' for name in ("outer.py", "inner.py")]


@pytest.mark.parametrize("content", [marshal.dumps((1, 2)), b"\0" * 40, b"\xe3"])
def test_a_damaged_copy_of_a_compiled_module_is_to_be_deleted(content, refused):
    write("inner.py", "")
    write("outer.py", "import torch\nimport inner\n")
    copy = Path(py_compile.compile("inner.py"))
    copy.write_bytes(copy.read_bytes()[:16] + content)

    lines = refused("outer.py")

    assert lines[0].startswith(f"outer.py could not be imported: {copy} is damaged (")
    assert "once you delete it" in lines[1]


def test_a_module_that_is_missing(refused):
    lines = refused("no_such_package.losses:loss")

    assert lines[0].endswith("could not be imported: No module named 'no_such_package'")


def test_a_program_without_backward(refused):
    write("forward.py", "import torch\ntorch.ones(3).sum()\n")

    assert refused("forward.py")[0].startswith("no backward ever ran in forward.py")


def test_a_program_that_trains_in_a_thread(refused):
    write(
        "threaded.py",
        "import threading, torch\n"
        "leaf = torch.ones(3, requires_grad=True)\n"
        "worker = threading.Thread(target=lambda: leaf.sum().backward(), name='trainer')\n"
        "worker.start()\n"
        "worker.join()\n",
    )

    assert refused("threaded.py")[0] == (
        "every backward of threaded.py ran in a thread of its own (trainer), "
        "and only the main thread is observed"
    )


@pytest.mark.parametrize(
    ("words", "message", "help"),
    [
        (["loss"], "losses.py:loss needs inputs x, scale that nobody gave", "--input 'x="),
        (["loss", "x=torch.ones(2)"], "losses.py:loss needs an input scale that nobody gave", ""),
        (
            ["loss", "x=torch.ones(2)", "scale=1", "sacle=2"],
            "losses.py:loss takes no input sacle",
            "did you mean scale? it takes x, scale",
        ),
        (["vector", "x=torch.ones(2)"], "the loss of losses.py:vector is not a scalar: its", ""),
        (["detached", "x=torch.ones(2)"], "the loss of losses.py:detached needs no gradient", ""),
        (["nothing", "x=torch.ones(2)"], "losses.py:nothing returned a dict with output", ""),
        (["vectr", "x=1"], "losses.py has no vectr", "did you mean vector?"),
        (["PI"], "losses.py:PI is a float and cannot be called", ""),
        (["vector", "x=torch.oness(2)"], "--input x cannot be evaluated: AttributeError", ""),
        (["vector", "x=1 +"], "--input x cannot be evaluated: SyntaxError", ""),
    ],
)
def test_a_function_and_its_inputs(refused, words, message, help):
    name, *inputs = words
    options = [word for given in inputs for word in ("--input", given)]

    first, *rest = refused(f"losses.py:{name}", *options)

    assert first.startswith(message)
    assert rest[0].startswith(f"help: {help}")


def test_a_model_that_needs_arguments(refused):
    write("net.py", "import torch\nclass Net(torch.nn.Module):\n  def __init__(self, n): pass\n")

    first, help = refused("net.py", "--model", "Net", "--batch", "torch.ones(2)")

    assert first == "net.py:Net needs n to be made"
    assert help == "help: write them out: 'net.py:Net(n=...)'"


def test_a_mistake_in_the_configuration(refused):
    write("gradscope.yaml", "target: train.py\nstpes: 3\n")

    assert refused() == [
        "gradscope.yaml:2:1: unknown key stpes",
        "help: did you mean steps?",
    ]


def test_an_unknown_rule_in_the_configuration(refused):
    write("gradscope.yaml", "target: train.py\nignore: [masked-brunch]\n")

    first, help = refused()

    assert first == "gradscope.yaml:2:1: unknown rule masked-brunch"
    assert "masked-branch" in help


@pytest.mark.parametrize("command", ["trace", "norms", "fix"])
def test_a_configured_device_that_is_not_here(folder, capfd, command):
    write("gradscope.yaml", "device: cuda:99\n")

    assert main([command, "train.py"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gradscope: error: device cuda:99 cannot be used: ")


def test_a_file_that_is_no_python(refused):
    Path("weights.py").write_bytes(b"\x00\x01\x02")

    assert refused("weights.py")[0] == "weights.py is not Python source"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read(refused, folder):
    (folder / "train.py").chmod(0)

    assert refused("train.py")[0] == "train.py cannot be read: permission denied"
