"""What breaks under the transforms of torch.func is told as it is in plain code: the same place,
cause and patch, and the tensor by the program's name."""

from pathlib import Path

import pytest
from apart import traced

from gradscope.facts import Finding

PROGRAM = """
import torch
from torch.func import grad, hessian, jacrev, vjp, vmap


def f(x):
    {body}


x = torch.tensor([[0.0, 1.0], [2.0, 3.0]], requires_grad={leaf})
{run}
"""
BODIES = {
    "masked": "return torch.where(x > 0, x * torch.log(x), torch.zeros_like(x)).sum()",
    "masked root": "return torch.where(x > 0, x.sqrt(), x).sum()",
    "root": "return (x * x).sqrt().sum()",
    "division": "return (1 / x).sum()",
}
WAYS = {
    "vmap of grad": "x = x - vmap(grad(f))(x)",
    "grad": "x = x - grad(f)(x)",
    "jacrev": "x = x - jacrev(f)(x)",
    "hessian": "x = x - hessian(f)(x).sum((2, 3))",
    "vjp": "x = x - vjp(f, x)[1](torch.ones(()))[0]",
    "vmap of jacrev": "x = x - vmap(jacrev(f))(x)",
    "two vmaps": "x = x - vmap(vmap(grad(f)))(x)",
}


def finding(body: str, run: str, folder: Path, *, leaf: bool = False) -> Finding:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(body=BODIES[body], run=run, leaf=leaf), encoding="utf-8")
    (found,) = traced(path).findings
    return found


def edit(found: Finding) -> list[str]:
    """The lines that the first patch takes out and puts in."""
    patch = found.fixes[0].patch or ""
    return [line for line in patch.splitlines()[2:] if line.startswith(("+", "-"))]


def test_a_branch_that_where_discards_of_each_sample_alone(tmp_path):
    body, run = "return torch.where(x > 0, x.sqrt(), x)", "vmap(vmap(grad(f)))(x)"
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(body=body, run=run, leaf=False))
    (found,) = traced(path).findings

    assert (found.rule, found.location.line) == ("GS101", 7)
    assert "torch.where(x > 0, x, 1.0).sqrt()" in edit(found)[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.long
def test_as_in_plain_code(body, way, tmp_path):
    if (body, way) == ("masked root", "hessian"):
        pytest.skip("its second pass goes back through the slope of the root itself")
    plain = finding(body, "f(x).backward()", tmp_path, leaf=True)
    found = finding(body, WAYS[way], tmp_path)

    assert (found.rule, found.op, found.location) == (plain.rule, plain.op, plain.location)
    if body != "division":  # within a transform nothing tells that `x` is more than data
        assert edit(found) == edit(plain) != []
    assert {symptom.tensor for symptom in found.symptoms} == {
        symptom.tensor for symptom in plain.symptoms
    }
