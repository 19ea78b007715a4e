"""What the last of a stack of layers makes for a next one is no fault; a whole layer that nothing
reads is one."""

from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.move, self.update = nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, h, x):
        return h + self.update(h).tanh(), x + self.move(h)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, h, x):
        for layer in self.layers:
            {line}
        return x


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    net(torch.randn(8, 4), torch.randn(8, 2)).square().mean().backward()
    optimizer.step()
"""


def test_what_a_last_layer_makes_for_a_next_one_is_noted(tmp_path):
    report = diagnosed_text(PROGRAM.format(line="h, x = layer(h, x)"), tmp_path)

    (found,) = report.findings
    assert (report.verdict, found.rule, found.severity.value) == ("healthy", "GS403", "note")
    assert "layers.2.update" in found.message


def test_what_no_layer_hands_on_is_told(tmp_path):
    report = diagnosed_text(PROGRAM.format(line="_, x = layer(h, x)"), tmp_path)

    assert report.verdict == "unhealthy"
    assert {one.rule for one in report.findings} == {"GS403"}
