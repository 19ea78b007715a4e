"""LoRA: B starts at zero, so A's first gradient is exactly zero."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.A.T @ self.B.T


model = nn.Sequential(LoRA(nn.Linear(8, 8)), nn.ReLU(), LoRA(nn.Linear(8, 3)))
trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-2)
for _ in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(9, 8)), torch.randint(0, 3, (9,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
