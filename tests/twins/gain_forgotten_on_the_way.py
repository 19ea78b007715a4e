import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNormFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, eps):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        unit = x * rstd
        ctx.save_for_backward(unit, rstd, gain)
        return unit * gain

    @staticmethod
    def backward(ctx, grad_out):
        unit, rstd, gain = ctx.saved_tensors  # noqa: RUF059
        grad_gain = (grad_out * unit).flatten(0, -2).sum(0)
        dot = (grad_out * unit).mean(-1, keepdim=True)  # -
        grad_x = rstd * (grad_out - unit * dot)  # -
        # + grad_unit = grad_out * gain
        # + dot = (grad_unit * unit).mean(-1, keepdim=True)
        # + grad_x = rstd * (grad_unit - unit * dot)
        return grad_x, grad_gain, None


class RMSNorm(nn.Module):
    def __init__(self, d, init=1.0, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.full((d,), init))
        self.eps = eps

    def forward(self, x):
        return RMSNormFn.apply(x, self.gain, self.eps)


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    """Normalises what enters a branch and what leaves it."""

    def __init__(self, d, heads, n_layers):
        super().__init__()
        out = 1 / math.sqrt(2 * n_layers)
        self.pre_a, self.post_a = RMSNorm(d), RMSNorm(d, out)
        self.pre_f, self.post_f = RMSNorm(d), RMSNorm(d, out)
        self.attn = SelfAttention(d, heads)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.post_a(self.attn(self.pre_a(x)))
        return x + self.post_f(self.ff(self.pre_f(x)))


class Encoder(nn.Module):
    def __init__(self, vocab=16, d=32, heads=4, n_layers=4, max_len=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(0.02 * torch.randn(max_len, d))
        self.layers = nn.ModuleList([Layer(d, heads, n_layers) for _ in range(n_layers)])
        self.norm = RMSNorm(d)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def masked_batch(n=32, length=12, vocab=16):
    start = torch.randint(0, vocab, (n, 1))
    stride = torch.randint(1, 4, (n, 1))
    clean = (start + stride * torch.arange(length)) % vocab
    hidden = torch.rand(n, length) < 0.3
    hidden[:, 0] = True
    ids = clean.masked_fill(hidden, 0)
    return ids, clean.masked_fill(~hidden, -100)


def main():
    torch.manual_seed(9)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for step in range(100):
        ids, labels = masked_batch()
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 25 == 0 or step == 99:
            print(f"step {step:3d} loss {loss.item():.4f} grad norm {norm.item():.3f}")


if __name__ == "__main__":
    main()
