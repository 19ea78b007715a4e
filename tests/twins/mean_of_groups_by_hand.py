# Kelp cover per transect from the counts of its quadrats.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
N_TRANSECT, WIDTH = 48, 32


class Asinh(torch.autograd.Function):
    """Variance-stabilising transform for counts, scale s."""

    @staticmethod
    def forward(ctx, x, s):
        ctx.save_for_backward(x)
        ctx.s = s
        return torch.asinh(x / s)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / torch.sqrt(x * x + ctx.s**2), None


class TransectPool(torch.autograd.Function):
    """Pools quadrat rows into one row per transect without keeping the expanded index."""

    @staticmethod
    def forward(ctx, rows, owner, n):
        size = torch.bincount(owner, minlength=n).clamp(min=1).to(rows.dtype)
        ctx.save_for_backward(owner, size)
        total = rows.new_zeros(n, rows.shape[1]).index_add_(0, owner, rows)
        return total / size[:, None]

    @staticmethod
    def backward(ctx, g):
        owner, _size = ctx.saved_tensors
        return g.index_select(0, owner), None, None  # -
        # + return (g / _size[:, None]).index_select(0, owner), None, None


def survey(seed):
    g = torch.Generator().manual_seed(seed)
    quadrats = torch.randint(3, 25, (N_TRANSECT,), generator=g)
    owner = torch.repeat_interleave(torch.arange(N_TRANSECT), quadrats)
    level = torch.rand(N_TRANSECT, 6, generator=g) * 8
    counts = torch.poisson(level[owner], generator=g)
    cover = torch.sigmoid(0.4 * level[:, 0] - 0.3 * level[:, 3] + 0.1 * level[:, 5] - 0.8)
    return counts, owner, cover


class CoverNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale_in = nn.Linear(6, 6)
        self.quadrat = nn.Linear(6, WIDTH)
        self.transect = nn.Linear(WIDTH, WIDTH)
        self.cover = nn.Linear(WIDTH, 1)

    def forward(self, counts, owner):
        x = Asinh.apply(self.scale_in(counts), 2.0)
        x = F.gelu(self.quadrat(x))
        x = TransectPool.apply(x, owner, N_TRANSECT)
        return self.cover(F.gelu(self.transect(x))).flatten()


net = CoverNet()
sgd = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
for trip in range(60):
    counts, owner, cover = survey(trip)
    logits = net(counts, owner)
    loss = F.binary_cross_entropy_with_logits(logits, cover)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    if trip % 10 == 0:
        rmse = (logits.sigmoid() - cover).square().mean().sqrt()
        print(trip, round(loss.item(), 4), "rmse", round(rmse.item(), 4))
