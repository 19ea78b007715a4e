"""The real command, in a subprocess."""

import json
import os
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "gradscope/norms/schema.json").read_text())

LOOP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    (model(torch.randn(8, 4)) - 1).square().mean().backward()
    optimizer.step()
"""


def test_nothing_said_is_reference_program_4(gradscope):
    done = gradscope("norms", "--max-norm", "100")

    assert done.returncode == 0, done.stderr
    assert "no target given: this is the built-in example clip_norm" in done.stdout
    assert "100 / 17937.5879" in done.stdout
    assert "x.grad [198.0000, 216.0000] -> [1.1038, 1.2042]" in done.stdout
    assert "y.grad [6075.0000, 16875.0000] -> [33.8674, 94.0762]" in done.stdout


def test_json_follows_its_schema_and_the_page_stands_alone(gradscope, tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    done = gradscope("norms", "loop.py", "--format", "json", "--html", "page.html")
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    page = (tmp_path / "page.html").read_text()

    assert len(document["steps"]) == 12 and document["step"] == 8
    assert [row["name"] for row in document["parameters"]] == [
        "model.0.weight", "model.0.bias", "model.2.weight", "model.2.bias",
    ]  # fmt: skip
    assert all(row["update"] > 0 for row in document["parameters"])
    assert [layer["layer"] for layer in document["layers"][:3]] == ["model.0", "model.1", "model.2"]
    assert all(layer["gradient_norm"] > 0 for layer in document["layers"])
    assert "://" not in page and "<script" not in page and "model.0.weight" in page


def test_the_page_crosses_out_what_is_not_finite_and_tells_where(gradscope, tmp_path):
    spiked = LOOP.replace("for _ in range(12)", "for step in range(12)").replace(
        "torch.randn(8, 4)", "torch.randn(8, 4) * (1e38 if step == 9 else 1)"
    )
    (tmp_path / "loop.py").write_text(spiked)
    done = gradscope("norms", "loop.py", "--html", "page.html", "--steps", "10")
    page = (tmp_path / "page.html").read_text()

    assert "(at step 9): clip_grad_norm_ would turn" in done.stdout
    assert "spikes: step 9: " in done.stdout
    assert '<g class="lost">' in page
    assert "<title>model.0.weight, step 9: nan</title>" in page


@pytest.mark.slow
def test_without_matplotlib_the_page_has_its_numbers_and_says_how_to_get_pictures(
    gradscope, tmp_path
):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "matplotlib.py").write_text(
        "from pathlib import Path\n"
        "Path(__file__).with_name('asked').touch()\n"
        "raise ImportError('No module named <matplotlib>')\n"
    )
    path = os.pathsep.join([str(hidden), str(ROOT)])
    (tmp_path / "loop.py").write_text(LOOP)
    assert gradscope("norms", "loop.py", PYTHONPATH=path).returncode == 0
    assert not (hidden / "asked").exists()

    done = gradscope("norms", "loop.py", "--html", "page.html", PYTHONPATH=path)
    page = (tmp_path / "page.html").read_text()
    assert done.returncode == 0, done.stderr
    assert (hidden / "asked").exists()
    assert page.count("pip install matplotlib") == 1
    assert "(No module named &lt;matplotlib&gt;)" in page and "<svg" not in page
    assert "<td>model.0.weight</td>" in page and "<details open>" in page
    assert "median" in page and "L2 norm of each gradient by step" not in page


def test_what_a_max_norm_clips_over_the_run_is_said(gradscope, tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)

    done = gradscope("norms", "loop.py", "--max-norm", "1e-6")

    assert "over the run max_norm 1e-06 clips 12 of 12 steps (100 %)" in done.stdout, done.stderr


@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_the_table_fits(gradscope, tmp_path, width):
    (tmp_path / "loop.py").write_text(LOOP)
    done = gradscope("norms", "loop.py", COLUMNS=width)

    assert max(map(len, done.stdout.splitlines())) <= int(width)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--max-norm", "0"), "--max-norm 0"),
        (("--max-norm=-3",), "--max-norm -3"),
        (("--max-norm", "nan"), "--max-norm nan"),
        (("--norm-type", "0"), "--norm-type 0"),
        (("--norm-type=-1",), "--norm-type -1"),
        (("--sort", "size"), "--sort size"),
        (("--format", "xml"), "xml"),
        (("none.py",), "none.py"),
    ],
)
@pytest.mark.long
def test_bad_input_is_one_line_and_exit_2(gradscope, words, says):
    done = gradscope("norms", *words)

    assert done.returncode == 2
    assert says in done.stderr.splitlines()[0] and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import torch\n", "no backward ever ran"),
        ("raise ValueError('no')\n", "ended before its first backward: ValueError: no"),
        ("import torch\nx = torch.ones(2, requires_grad=True)\n(x * 2).sum()\n", "no backward"),
    ],
)
def test_a_program_without_gradients_is_told(gradscope, tmp_path, source, says):
    (tmp_path / "empty.py").write_text(source)
    done = gradscope("norms", "empty.py")

    assert done.returncode == 2 and says in done.stderr


def test_an_inf_gradient_is_named_with_what_clipping_would_do(gradscope, tmp_path):
    (tmp_path / "bad.py").write_text(
        "import torch\n"
        "a = torch.zeros(2, requires_grad=True)\n"
        "b = torch.ones(2, requires_grad=True)\n"
        "(a.sqrt().sum() + b.sum()).backward()\n"
    )
    done = gradscope("norms", "bad.py", "--max-norm", "1")

    assert "note: 1 gradient is not finite, first `a` (2 of 2 elements)" in done.stdout
