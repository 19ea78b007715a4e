"""Short-term traffic forecast on loop detectors with a road graph and a learned graph."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
N_SENSORS, HISTORY, HORIZON = 20, 12, 3


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out, n_supports, order=2, p=0.1):
        super().__init__()
        self.order, self.p = order, p
        self.mix = nn.Linear(d_in * (1 + order * n_supports), d_out)

    def forward(self, x, supports):
        parts = [x]
        for a in supports:
            h = x
            for _ in range(self.order):
                h = torch.einsum("nm,bmtc->bntc", a, h)
                parts.append(h)
        return F.dropout(self.mix(torch.cat(parts, -1)), self.p, self.training)


class Block(nn.Module):
    def __init__(self, d, n_supports):
        super().__init__()
        self.filt, self.gate = nn.Linear(d, d), nn.Linear(d, d)
        self.conv = GraphConv(d, d, n_supports)
        self.norm = nn.LayerNorm(d)

    def forward(self, x, supports):
        h = torch.tanh(self.filt(x)) * torch.sigmoid(self.gate(x))
        return self.norm(x + self.conv(h, supports))


class TrafficNet(nn.Module):
    def __init__(self, road, d=16, rank=6, blocks=2):
        super().__init__()
        self.register_buffer("road", road / road.sum(1, keepdim=True))
        self.register_buffer("road_back", road.t() / road.t().sum(1, keepdim=True))
        self.emb_src = nn.Parameter(torch.randn(road.shape[0], rank))
        self.emb_dst = nn.Parameter(torch.randn(rank, road.shape[0]))
        learned = F.softmax(F.relu(self.emb_src @ self.emb_dst), dim=1)  # -
        self.supports = [self.road, self.road_back, learned]  # -
        self.lift = nn.Linear(1, d)
        self.blocks = nn.ModuleList([Block(d, 3) for _ in range(blocks)])
        self.head = nn.Sequential(nn.Linear(d * HISTORY, 64), nn.ReLU(), nn.Linear(64, HORIZON))

    def forward(self, x):
        # + learned = F.softmax(F.relu(self.emb_src @ self.emb_dst), dim=1)
        # + supports = [self.road, self.road_back, learned]
        h = self.lift(x.unsqueeze(-1))
        for block in self.blocks:
            h = block(h, self.supports)  # -
            # + h = block(h, supports)
        return self.head(h.flatten(2))


def masked_mae(pred, target, null=0.0):
    mask = (target != null).float()
    return (mask * (pred - target).abs()).sum() / mask.sum().clamp(min=1)


def make_speeds(n=256):
    t = torch.arange(n + HISTORY + HORIZON).float()
    phase = torch.rand(N_SENSORS, 1) * 6.28
    speed = torch.sin(0.2 * t + phase) + 0.1 * torch.randn(N_SENSORS, len(t))
    x = torch.stack([speed[:, i:i + HISTORY] for i in range(n)])
    y = torch.stack([speed[:, i + HISTORY:i + HISTORY + HORIZON] for i in range(n)])
    return TensorDataset(x, y)


def main():
    road = (torch.rand(N_SENSORS, N_SENSORS) > 0.8).float() + torch.eye(N_SENSORS)
    model = TrafficNet(road)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    loader = DataLoader(make_speeds(), batch_size=32, shuffle=True)
    for epoch in range(2):
        model.train()
        for i, (x, y) in enumerate(loader):
            loss = masked_mae(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            print(f"epoch {epoch} batch {i} mae {loss.item():.4f}")


if __name__ == "__main__":
    main()
