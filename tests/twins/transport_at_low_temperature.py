import torch

torch.manual_seed(0)


def sinkhorn(cost, a, b, eps=0.005, iters=50):
    K = torch.exp(-cost / eps)  # -
    u = torch.ones_like(a)  # -
    v = torch.ones_like(b)  # -
    # + M = -cost / eps
    # + f = torch.zeros_like(a)
    # + g = torch.zeros_like(b)
    for _ in range(iters):
        u = a / (K @ v)  # -
        v = b / (K.t() @ u)  # -
    plan = u[:, None] * K * v[None, :]  # -
        # + f = a.log() - torch.logsumexp(M + g[None, :], dim=1)
        # + g = b.log() - torch.logsumexp(M + f[:, None], dim=0)
    # + plan = torch.exp(f[:, None] + M + g[None, :])
    return (plan * cost).sum()


x = torch.randn(7, 2, requires_grad=True)
y = torch.randn(9, 2)
cost = torch.cdist(x, y) ** 2
loss = sinkhorn(cost, torch.full((7,), 1 / 7), torch.full((9,), 1 / 9))
loss.backward()
print(loss.item(), x.grad.norm())
