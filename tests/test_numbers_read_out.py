"""Bad values that leave a tensor as Python numbers, and come back as such."""

import pytest
from corpus import diagnosed_text

PROGRAM = """import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
counts = torch.tensor([0.0, 3.0, 5.0])
{made}
for step in range(3):
    loss = net(torch.randn(8, 4)).square().mean(){factor}
    optimizer.zero_grad()
    loss.backward()
    {before}
    optimizer.step()
"""
LOG = "weights = counts.log()"
DIVIDED = "weights = counts / counts - 1"
WAYS = {
    "a factor": {"made": f"{DIVIDED}\nw = weights[0].item()", "factor": " * w"},
    "of a list": {"made": f"{DIVIDED}\nw = weights.tolist()", "factor": " * w[0]"},
    "a literal": {
        "made": f"{DIVIDED}\nw = torch.tensor(weights.tolist())",
        "factor": " * w.mean()",
    },
    "an inf": {"made": f"{LOG}\nw = -weights[0].item()", "factor": " * w"},
    "a setting": {"made": DIVIDED, "before": "optimizer.param_groups[0]['lr'] = weights[0].item()"},
    "an infinite setting": {
        "made": "weights = counts ** -0.5",
        "before": "optimizer.param_groups[0]['lr'] = float(weights[step])",
    },
}
BARE = {"factor": "", "before": "pass"}


@pytest.mark.parametrize("changed", WAYS.values(), ids=WAYS)
def test_where_the_number_was_born_is_told(changed, tmp_path):
    found = diagnosed_text(PROGRAM.format_map(BARE | changed), tmp_path).findings[0]

    assert found.location.line == 7
    assert found.chain[0].op in ("log", "div", "pow")


UNKNOWN = {
    "from nowhere": "w = float('nan')",
    "of one of two": "a, b = (counts / counts).tolist(), (counts * torch.inf).tolist()\n"
    "w = float('nan')",
}


@pytest.mark.parametrize("made", UNKNOWN.values(), ids=UNKNOWN)
def test_one_that_may_be_another_is_told_where_it_came_in(made, tmp_path):
    text = PROGRAM.format_map(BARE | {"made": made, "factor": " * w"})
    found = diagnosed_text(text, tmp_path).findings[0]

    assert found.location.line == text[: text.index("loss = ")].count("\n") + 1
