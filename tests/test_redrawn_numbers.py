"""Parts of the forward pass that backward runs again, with the same random numbers or others."""

import pytest
from corpus import diagnosed_text

PROGRAM = """import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, x, *parameters):
        ctx.run, ctx.parameters = run, parameters
        ctx.save_for_backward(x){keep}
        with torch.no_grad():
            return ctx.run(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_(True)
        with torch.enable_grad(){fork}:{set}
            y = ctx.run(x)
        return None, *torch.autograd.grad(y, (x, *ctx.parameters), grad)


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout({p}))
        self.out = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.net(x))


part, head = Part(), torch.nn.Linear(4, 1)
part.train({training})
optimizer = torch.optim.SGD([*part.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    x = torch.randn(8, 4, requires_grad=True)
    h = {call}
    optimizer.zero_grad()
    head(h).square().mean().backward()
    optimizer.step()
"""
OWN = "Again.apply(part, x, *part.parameters())"
BARE = {"keep": "", "fork": "", "set": "", "p": 0.5, "training": True, "call": OWN}
KEPT = {
    "keep": "\n        ctx.state = torch.get_rng_state()",
    "fork": ", torch.random.fork_rng(devices=[])",
    "set": "\n            torch.set_rng_state(ctx.state)",
}
FLAG = "preserve_rng_state=False"


def test_a_checkpoint_of_ones_own_that_draws_anew_is_told_and_repaired(tmp_path):
    (found,) = diagnosed_text(PROGRAM.format_map(BARE), tmp_path, verify=True).findings

    assert (found.rule, found.severity) == ("GS306", "error")
    assert found.location.line == PROGRAM[: PROGRAM.index("y = ctx.run")].count("\n") + 1
    assert found.fixes[0].verified
    assert "torch.set_rng_state(ctx.rng_run)" in found.fixes[0].patch


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.long
def test_one_of_torchs_own_that_is_told_to_is_told_at_its_call(reentrant, tmp_path):
    call = f"checkpoint(part, x, use_reentrant={reentrant}, {FLAG})"
    text = PROGRAM.format_map(BARE | {"call": call})
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert found.rule == "GS306"
    assert found.location.line == text[: text.index("h = ")].count("\n") + 1
    assert found.fixes[0].verified
    assert "preserve_rng_state=True" in found.fixes[0].code


RIGHT = {
    "the state is set again": KEPT,
    "nothing is dropped": {"p": 0.0},
    "the mode is eval": {"training": False},
    "torch's own": {"call": "checkpoint(part, x, use_reentrant=False)"},
    "torch's own, reentrant": {"call": "checkpoint(part, x, use_reentrant=True)"},
    "nothing is run again": {"call": "part(part(x))"},
}


@pytest.mark.parametrize("changed", RIGHT.values(), ids=RIGHT)
def test_the_same_numbers_are_not(changed, tmp_path):
    assert not diagnosed_text(PROGRAM.format_map(BARE | changed), tmp_path).findings
