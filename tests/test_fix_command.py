"""`gradscope fix` as a user runs it: a program with two bugs, three spellings of the way out."""

import re
import subprocess
import sys

import pytest

PROGRAM = """import torch
import torch.nn.functional as F

x = torch.tensor([0.0, 4.0], requires_grad=True)
z = torch.tensor([[200.0, 0.0]], requires_grad=True)
loss = torch.where(x > 0, x ** 0.5, x).sum()
loss = loss - torch.log(F.softmax(z, -1))[0, 1]
loss.backward()
print(x.grad, z.grad)
"""


@pytest.mark.long
def test_the_printed_patch_makes_the_program_healthy(gradscope, tmp_path):
    file = tmp_path / "loss.py"
    file.write_text(PROGRAM)

    done = gradscope("fix", "loss.py")
    subprocess.run(["git", "apply", "-"], input=done.stdout, text=True, cwd=tmp_path, check=True)
    again = subprocess.run(
        [sys.executable, "loss.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert 0 == done.returncode, done.stderr
    assert "torch.log_softmax(z, -1)" in file.read_text()
    assert "healthy after" in done.stderr
    assert "nan" not in again.stdout and "inf" not in again.stdout


BOUND = """\
import torch

x = torch.tensor([0.3, 1.0], requires_grad=True)
loss = torch.acos(x).sum()
loss.backward()
"""


@pytest.mark.long
def test_write_keeps_to_safe_fixes(gradscope, tmp_path):
    """A bound moves the loss, so it needs --unsafe; a stable form that was seen to compute the same
    does not."""
    bound = tmp_path / "bound.py"
    bound.write_text(BOUND)
    file = tmp_path / "loss.py"
    file.write_text(PROGRAM)

    kept, done = gradscope("fix", "bound.py", "--write"), gradscope("fix", "loss.py", "--write")

    assert 1 == kept.returncode, kept.stderr
    assert "withheld: GS102" in kept.stderr
    assert bound.read_text() == BOUND
    assert 0 == done.returncode, done.stderr
    assert "log_softmax" in file.read_text()


def test_what_is_written_is_printed_where_that_is_asked_for(gradscope, tmp_path):
    file = tmp_path / "loss.py"
    file.write_text(PROGRAM)

    done = gradscope("fix", "loss.py", "--write", "--unsafe", "--diff")

    assert "log_softmax" in file.read_text()
    assert done.stdout.startswith("--- a/loss.py") and "+loss = loss - torch.log_s" in done.stdout


def test_a_built_in_example_is_not_written_to(gradscope):
    done = gradscope("fix", "gamma_mask", "--write")

    assert 2 == done.returncode
    assert "built-in example" in done.stderr


def test_a_model_with_its_loss_and_a_batch(gradscope, tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(3, 1, bias=False)\n"
        "batch = torch.zeros(4, 3), torch.zeros(4, 1)\n"
        "def loss(out, y):\n"
        "    return (out - y).square().sqrt().mean()\n"
    )
    names = {"--model": "net.py:model", "--loss": "net.py:loss", "--batch": "net.py:batch"}

    done = gradscope("fix", *(word for pair in names.items() for word in pair))

    assert 0 == done.returncode, done.stderr
    assert "+    return (out - y).abs().mean()" in done.stdout


def test_a_file_of_another_encoding_is_told_as_the_reason(gradscope, tmp_path):
    text = "# -*- coding: latin-1 -*-\nimport torch\nname = 'café'\n" + PROGRAM.partition("\n")[2]
    (tmp_path / "loss.py").write_bytes(text.encode("latin-1"))

    done = gradscope("fix", "loss.py")

    assert 1 == done.returncode
    assert "no patch: GS202" in done.stderr
    assert "the file is encoded as iso-8859-1" in done.stderr


def test_a_file_that_changes_while_its_program_runs_is_left_alone(gradscope, tmp_path):
    file = tmp_path / "loss.py"
    edits = f"import pathlib\npathlib.Path({str(file)!r}).write_text('# edited')\n"
    file.write_text(PROGRAM.replace("import torch\n", f"import torch\n{edits}", 1))

    done = gradscope("fix", "loss.py", "--write", "--unsafe")

    assert file.read_text() == "# edited"
    assert "+" not in done.stdout or 2 == done.returncode


def test_what_a_comment_accepts_is_not_repaired(gradscope, tmp_path):
    ignored = re.sub(r"^(loss = .*)", r"\1  # gradscope: ignore", PROGRAM, flags=re.MULTILINE)
    (tmp_path / "loss.py").write_text(ignored)

    done = gradscope("fix", "loss.py")

    assert (done.returncode, done.stdout) == (0, "")
    assert "healthy" in done.stderr
