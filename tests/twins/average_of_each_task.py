"""Kitchen assistant: one trunk predicts dish, doneness and calories; tasks balanced by their running level."""
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)


@dataclass
class Balancer:
    beta: float = 0.9
    warmup: int = 20
    level: dict = field(default_factory=dict)
    seen: int = 0

    def observe(self, losses):
        for name, value in losses.items():
            old = self.level.get(name, 1.0)
            self.level[name] = self.beta * old + (1 - self.beta) * value  # -
            # + self.level[name] = self.beta * old + (1 - self.beta) * value.detach()
        self.seen += 1

    def combine(self, losses):
        self.observe(losses)
        if self.seen <= self.warmup:
            return sum(losses.values())
        return sum(v / self.level[k] for k, v in losses.items())


class Trunk(nn.Module):
    def __init__(self, d_in=20, d=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d_in, d), nn.LayerNorm(d), nn.GELU(), nn.Linear(d, d), nn.GELU())
        self.heads = nn.ModuleDict({"dish": nn.Linear(d, 5), "done": nn.Linear(d, 1), "kcal": nn.Linear(d, 1)})

    def forward(self, x):
        h = self.body(x)
        return {k: head(h) for k, head in self.heads.items()}


def task_losses(out, batch):
    return {
        "dish": F.cross_entropy(out["dish"], batch["dish"]),
        "done": F.binary_cross_entropy_with_logits(out["done"].squeeze(1), batch["done"]),
        "kcal": F.mse_loss(out["kcal"].squeeze(1), batch["kcal"]),
    }


mix = torch.randn(20, 5)


def sample(n=32):
    x = torch.randn(n, 20)
    s = x @ mix
    return {"x": x, "dish": s.argmax(1), "done": (s[:, 0] > 0).float(), "kcal": 3.0 + s[:, 1]}


model, balancer = Trunk(), Balancer()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    batch = sample()
    losses = task_losses(model(batch["x"]), batch)
    total = balancer.combine(losses)
    opt.zero_grad()
    total.backward()
    opt.step()
    if step % 15 == 0 or step == 119:
        print(step, {k: round(v.item(), 3) for k, v in losses.items()})
