"""Callsign letters from short-wave audio features; low precision training for the field laptop."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(33)


class CallsignNet(nn.Module):
    def __init__(self, d_in=32, d=64, letters=12):
        super().__init__()
        self.inp = nn.Linear(d_in, d)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)) for _ in range(2))
        self.out = nn.Linear(d, letters)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.out(h)


class Source:
    def __init__(self, letters=12, d_in=32):
        self.patterns = torch.randn(letters, d_in)

    def __call__(self, n=32):
        y = torch.randint(0, len(self.patterns), (n,))
        return self.patterns[y] + 1.5 * torch.randn(n, self.patterns.shape[1]), y


def make_model(dtype):  # -
    model = CallsignNet().to(dtype)  # -
# + def make_model():
    # + model = CallsignNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    return model, opt, warm


def train(steps=300, dtype=torch.bfloat16):
    source = Source()
    model, opt, warm = make_model(dtype)  # -
    # + model, opt, warm = make_model()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    recent = []
    for step in range(steps):
        x, y = source()
        logits = model(x.to(dtype))  # -
        # + with torch.autocast("cpu", dtype=dtype):
            # + logits = model(x)
        loss = F.cross_entropy(logits.float(), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        warm.step()
        recent.append(loss.item())
        if (step + 1) % 60 == 0:
            print(f"step {step + 1} loss {sum(recent[-60:]) / 60:.4f}")
    return model, before


model, before = train()
moved = [(p != before[n]).float().mean().item() for n, p in model.named_parameters()]
print("share of weights that moved, per tensor:", [round(m, 2) for m in moved])
