"""Spiking classifier for event camera gestures."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)


class Fire(torch.autograd.Function):
    """Heaviside forward, derivative of a steep sigmoid backward."""

    @staticmethod
    def forward(ctx, u, slope):
        ctx.save_for_backward(u)
        ctx.slope = slope
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx, grad_out):
        (u,) = ctx.saved_tensors
        e = torch.exp(-ctx.slope * u)  # -
        return grad_out * ctx.slope * e / (1 + e) ** 2, None  # -
        # + s = torch.sigmoid(ctx.slope * u)
        # + return grad_out * ctx.slope * s * (1 - s), None


class LIF(nn.Module):
    def __init__(self, size, beta=0.9, threshold=1.0, slope=25.0):
        super().__init__()
        self.beta = nn.Parameter(torch.full((size,), beta))
        self.threshold, self.slope = threshold, slope

    def forward(self, current, mem):
        mem = self.beta.clamp(0, 1) * mem + current
        spike = Fire.apply(mem - self.threshold, self.slope)
        return spike, mem - spike.detach() * self.threshold


class SpikingNet(nn.Module):
    def __init__(self, inputs=64, hidden=48, classes=4):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, hidden), nn.Linear(hidden, classes)
        self.lif1, self.lif2 = LIF(hidden), LIF(classes)
        self.hidden, self.classes = hidden, classes

    def forward(self, events):
        steps, b, _ = events.shape
        m1 = events.new_zeros(b, self.hidden)
        m2 = events.new_zeros(b, self.classes)
        rate, trace = [], []
        for t in range(steps):
            s1, m1 = self.lif1(self.fc1(events[t]), m1)
            _, m2 = self.lif2(self.fc2(s1), m2)
            rate.append(s1.mean())
            trace.append(m2)
        return torch.stack(trace).mean(0), torch.stack(rate).mean()


def recordings(n, steps=20, inputs=64):
    """ON minus OFF polarity counts; a bar moves over the sensor in one of four speeds."""
    label = torch.randint(0, 4, (n,))
    pix = torch.arange(inputs).float()
    phase = torch.arange(steps).float()[:, None, None] * (1 + label.float())[None, :, None]
    centre = (phase * 1.5 + torch.randint(0, inputs, (1, n, 1))) % inputs
    on = torch.exp(-((pix - centre) / 2) ** 2)
    off = torch.exp(-((pix - centre + 4) / 2) ** 2)
    return 2.0 * (on - off) + 0.05 * torch.randn(steps, n, inputs), label


def train():
    net = SpikingNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 30, gamma=0.5)
    for step in range(60):
        events, label = recordings(16)
        logits, rate = net(events)
        loss = F.cross_entropy(logits, label) + 0.1 * (rate - 0.1).abs()
        opt.zero_grad()
        loss.backward()
        total = nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        opt.step()
        sched.step()
        if step % 5 == 0:
            print(f"{step:3d} loss {loss.item():.4f} rate {rate.item():.3f} grad {total.item():.3f}")


train()
