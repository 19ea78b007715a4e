"""GS406: a divisor that lies by far nearer to 0 at some elements, at which the loss leaps."""

from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 4)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
scales = torch.cat([torch.linspace(1.0, 0.1, 40), torch.tensor([{last}])])


def predict(x, noise, t):
    return (x - noise) / scales[t].unsqueeze(1)


for step in range(60):
    t = torch.randint(0, 40, (16,))
    if step % 20 == 19:
        t[0] = 40
    clean = torch.randn(16, 4)
    noisy = clean * scales[t].unsqueeze(1) + torch.randn(16, 4)
    loss = (predict(noisy, net(noisy), t) - clean).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_division_at_which_the_loss_leaps_is_told(tmp_path):
    (found,) = diagnosed_text(PROGRAM.format(last="1e-7"), tmp_path).findings

    assert (found.rule, found.location.line) == ("GS406", 11)
    assert found.step == 19


def test_a_divisor_that_is_only_small_is_fine(tmp_path):
    assert diagnosed_text(PROGRAM.format(last="0.05"), tmp_path).findings == ()
