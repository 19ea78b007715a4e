"""`norms` checks custom backwards too, and counts nothing that the check does."""

import json

import torch

WRONG = """
import torch

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return -grad_output * 3 * x**2

w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
optimizer = torch.optim.SGD([w], lr=1e-4)
for _ in range(3):
    optimizer.zero_grad()
    Cube.apply(w).square().sum().backward()
    optimizer.step()
"""


def test_a_wrong_backward_is_a_finding(gradscope, tmp_path):
    (tmp_path / "cube.py").write_text(WRONG)
    done = gradscope("norms", "cube.py", "--format", "json")
    document = json.loads(done.stdout)

    assert done.returncode == 1, done.stderr
    assert [found["rule"] for found in document["findings"]] == ["GS301"]
    assert len(document["steps"]) == 3

    done = gradscope("norms", "cube.py", "--format", "json", "--no-custom-backward")
    assert done.returncode == 0 and json.loads(done.stdout)["findings"] == []


def test_functions_are_left_as_they_were():
    from gradscope.record import Observation

    before = vars(torch.autograd.Function)["apply"]
    with Observation(each_op=False):
        pass

    assert vars(torch.autograd.Function)["apply"] is before
