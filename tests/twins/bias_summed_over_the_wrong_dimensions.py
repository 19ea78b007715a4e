"""Style mapping network + token generator sharing one fused bias/leaky-ReLU op with a hand-written backward."""
import itertools
import math

import torch
from torch import nn
from torch.autograd import Function


class FusedBiasLeakyFn(Function):
    @staticmethod
    def forward(ctx, x, bias, slope, gain):
        y = x + bias
        mask = y > 0
        ctx.save_for_backward(mask)
        ctx.slope, ctx.gain = slope, gain
        return torch.where(mask, y, slope * y) * gain

    @staticmethod
    def backward(ctx, grad_out):
        (mask,) = ctx.saved_tensors
        grad_x = torch.where(mask, grad_out, ctx.slope * grad_out) * ctx.gain
        dims = [0, *range(2, grad_x.ndim)]  # -
        # + dims = list(range(grad_x.ndim - 1))
        return grad_x, grad_x.sum(dims), None, None


class EqualLinear(nn.Module):
    def __init__(self, d_in, d_out, activate=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.scale = 1.0 / math.sqrt(d_in)
        self.activate = activate

    def forward(self, x):
        out = x @ (self.weight * self.scale).t()
        if self.activate:
            return FusedBiasLeakyFn.apply(out, self.bias, 0.2, math.sqrt(2.0))
        return out + self.bias


class Mapping(nn.Module):
    def __init__(self, z_dim, w_dim, depth=3):
        super().__init__()
        dims = [z_dim] + [w_dim] * depth
        self.layers = nn.Sequential(*[EqualLinear(a, b) for a, b in itertools.pairwise(dims)])

    def forward(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        return self.layers(z)


class TokenGenerator(nn.Module):
    def __init__(self, w_dim, n_tokens, d_model, d_out):
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, n_tokens, d_model))
        self.style = EqualLinear(w_dim, d_model, activate=False)
        self.mlp = EqualLinear(d_model, d_model)
        self.to_out = EqualLinear(d_model, d_out, activate=False)

    def forward(self, w):
        h = self.pos * (1.0 + self.style(w)[:, None])
        return self.to_out(h + self.mlp(h))


def strokes(n, n_tokens, z, mixing):
    """Pen strokes whose frequency and amplitude depend on the latent code."""
    t = torch.linspace(0, 2 * math.pi, n_tokens)
    a = 1.0 + 0.5 * torch.tanh(z @ mixing)
    return torch.stack([a[:, :1] * torch.sin(t), a[:, 1:] * torch.cos(t)], dim=-1)


def main():
    torch.manual_seed(5)
    z_dim, w_dim, n_tokens, d_model = 8, 24, 10, 24
    mixing = torch.randn(z_dim, 2) / math.sqrt(z_dim)
    mapping = Mapping(z_dim, w_dim)
    aux = EqualLinear(w_dim, 2, activate=False)
    gen = TokenGenerator(w_dim, n_tokens, d_model, 2)

    # stage 1: let the mapping network predict the two amplitudes
    opt = torch.optim.Adam(list(mapping.parameters()) + list(aux.parameters()), lr=5e-3)
    for i in range(60):
        z = torch.randn(64, z_dim)
        loss = (aux(mapping(z)) - torch.tanh(z @ mixing)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 20 == 0:
            print(f"[mapping] {i:3d} {loss.item():.4f}")

    # stage 2: train everything on strokes
    opt = torch.optim.Adam(list(mapping.parameters()) + list(gen.parameters()), lr=5e-3)
    for i in range(120):
        z = torch.randn(64, z_dim)
        loss = (gen(mapping(z)) - strokes(64, n_tokens, z, mixing)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 20 == 0:
            print(f"[strokes] {i:3d} {loss.item():.4f}")


if __name__ == "__main__":
    main()
