import torch
import torch.nn as nn

torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8))

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None]], 1))


betas = torch.linspace(1e-4, 0.02, 100)
alpha_bar = torch.cumprod(1 - betas, 0)
model = Denoiser()
ema = {k: v.detach().clone() for k, v in model.state_dict().items()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    x0, noise = torch.randn(16, 8), torch.randn(16, 8)
    t = torch.randint(0, 100, (16,))
    a = alpha_bar[t][:, None]
    pred = model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t / 100)
    snr_weight = torch.clamp(a / (1 - a), max=5.0).squeeze(1)
    loss = (snr_weight * (pred - noise).square().mean(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        ema[name].lerp_(value, 0.01)
    print(loss.item())
