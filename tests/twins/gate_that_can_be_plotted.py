"""Load moments of a tower crane some seconds ahead; weights are averaged over the last epochs."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset


class SensorGate(nn.Module):
    """Chooses for each window which sensors matter; the choice can be plotted afterwards."""

    def __init__(self, sensors, hidden=16):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(2 * sensors, hidden), nn.ReLU(), nn.Linear(hidden, sensors))
        self.chosen = None

    def forward(self, x):
        stats = torch.cat([x.mean(1), x.std(1)], -1)
        gate = self.score(stats).softmax(-1) * x.shape[-1]
        self.chosen = gate  # -
        # + self.chosen = gate.detach()
        return x * gate.unsqueeze(1)


class CausalConv(nn.Module):
    def __init__(self, i, o, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(i, o, 3, dilation=dilation)
        self.norm = nn.GroupNorm(4, o)

    def forward(self, x):
        return F.silu(self.norm(self.conv(F.pad(x, (self.pad, 0)))))


class Forecaster(nn.Module):
    def __init__(self, sensors, width=24):
        super().__init__()
        self.gate = SensorGate(sensors)
        self.convs = nn.ModuleList([CausalConv(sensors, width, 1), CausalConv(width, width, 2), CausalConv(width, width, 4)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.gate(x).transpose(1, 2)
        for conv in self.convs:
            h = conv(h)
        return self.out(h[:, :, -1]).squeeze(-1)


def windows(length=32, ahead=4, n=360, sensors=6):
    t = torch.arange(n + length + ahead) / 7.0
    phase = torch.rand(sensors) * 6
    series = torch.sin(t[:, None] * torch.linspace(0.5, 1.5, sensors) + phase) + 0.1 * torch.randn(len(t), sensors)
    moment = series[:, 0] * 1.5 - series[:, 2] + 0.3 * series[:, 4]
    x = torch.stack([series[i:i + length] for i in range(n)])
    y = moment[length + ahead - 1:length + ahead - 1 + n]
    shuffled = torch.randperm(n)
    return x[shuffled], y[shuffled]


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    error = (model(x) - y).abs().mean().item()
    model.train()
    return error


def main():
    torch.manual_seed(31)
    x, y = windows()
    loader = DataLoader(TensorDataset(x[:300], y[:300]), batch_size=30, shuffle=True)
    model = Forecaster(x.shape[-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    averaged, average_from = None, 4
    for epoch in range(8):
        for i, (xb, yb) in enumerate(loader):
            loss = F.smooth_l1_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch >= average_from and i % 5 == 4:
                averaged = averaged or AveragedModel(model)
                averaged.update_parameters(model)
        print(f"epoch {epoch}  train {loss.item():.4f}  val {validate(averaged or model, x[300:], y[300:]):.4f}")
    share = model.gate.chosen.mean(0)
    print("sensor shares", [round(v, 2) for v in share.tolist()])


if __name__ == "__main__":
    main()
