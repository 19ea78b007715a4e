"""Bank of complex resonators over hydrophone frames; the scan has a hand-written backward."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class ResonatorScan(torch.autograd.Function):
    """h[t] = pole * h[t-1] + u[t] for a complex diagonal pole."""

    @staticmethod
    def forward(ctx, pole, u):
        h, states = torch.zeros_like(u[:, 0]), []
        for t in range(u.shape[1]):
            h = pole * h + u[:, t]
            states.append(h)
        states = torch.stack(states, 1)
        ctx.save_for_backward(pole, states)
        return states

    @staticmethod
    def backward(ctx, grad_states):
        pole, states = ctx.saved_tensors
        grad_u = torch.empty_like(grad_states)
        grad_pole = torch.zeros_like(pole)
        carry = torch.zeros_like(grad_states[:, 0])
        for t in reversed(range(states.shape[1])):
            carry = grad_states[:, t] + pole * carry  # -
            # + carry = grad_states[:, t] + pole.conj() * carry
            grad_u[:, t] = carry
            if t > 0:
                grad_pole = grad_pole + (carry * states[:, t - 1]).sum(0)  # -
                # + grad_pole = grad_pole + (carry * states[:, t - 1].conj()).sum(0)
        return grad_pole, grad_u


class ResonatorBank(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.log_damping = nn.Parameter(torch.empty(n).uniform_(-3.5, -2.0))
        self.omega = nn.Parameter(torch.linspace(0.1, 2.8, n))

    def forward(self, u):
        pole = torch.polar(torch.exp(-torch.exp(self.log_damping)), self.omega)
        return ResonatorScan.apply(pole, u)


class CallDetector(nn.Module):
    def __init__(self, n=12, classes=3):
        super().__init__()
        self.re, self.im = nn.Linear(1, n, bias=False), nn.Linear(1, n, bias=False)
        self.bank = ResonatorBank(n)
        self.head = nn.Linear(2 * n, classes)

    def forward(self, wave):
        x = wave.unsqueeze(-1)
        h = self.bank(torch.complex(self.re(x), self.im(x)))
        last = h[:, -1]
        power = torch.view_as_real(h).pow(2).sum(-1).mean(1)
        return self.head(torch.cat((torch.log1p(power), last.real), 1))


def recordings(n, length=48):
    label = torch.randint(0, 3, (n,))
    freq = torch.tensor([0.55, 0.95, 1.6])[label] + 0.08 * torch.randn(n)
    t = torch.arange(length)
    wave = torch.sin(freq[:, None] * t + 6.28 * torch.rand(n, 1))
    return wave + 0.8 * torch.randn(n, length), label


detector = CallDetector()
opt = torch.optim.Adam(detector.parameters(), lr=5e-3)
wave, label = recordings(96)
for it in range(20):
    loss = F.cross_entropy(detector(wave), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 4 == 0:
        print(it, loss.item())
