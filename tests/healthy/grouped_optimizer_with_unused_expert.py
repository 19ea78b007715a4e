"""A mixture of experts: an expert that no token chose has no gradient in that step."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class MoE(nn.Module):
    def __init__(self, experts=3, d=8):
        super().__init__()
        self.gate = nn.Linear(d, experts)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(experts))

    def forward(self, x):
        weight, choice = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = choice == number
            if mine.any():
                out[mine] = expert(x[mine]) * weight[mine, None]
        return out


model = MoE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(8):
    x = torch.randn(6, 8)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
