import torch

torch.manual_seed(0)
# + def logadd(a, b):
# +     dead = torch.isneginf(a) & torch.isneginf(b)
# +     s = torch.logaddexp(a.masked_fill(dead, 0.0), b.masked_fill(dead, 0.0))
# +     return s.masked_fill(dead, float("-inf"))


def forward_var(logp, skip):
    T, K = logp.shape
    alpha = torch.cat([logp[0, :1], torch.full((K - 1,), float("-inf"))])
    for t in range(1, T):
        left = torch.nn.functional.pad(alpha[:-1], (1, 0), value=float("-inf"))
        two = torch.nn.functional.pad(alpha[:-2], (2, 0), value=float("-inf"))
        two = two.masked_fill(~skip, float("-inf"))
        alpha = torch.logaddexp(torch.logaddexp(alpha, left), two) + logp[t]  # -
        # + alpha = logadd(logadd(alpha, left), two) + logp[t]
    return alpha


net = torch.nn.Linear(5, 7)
opt = torch.optim.Adam(net.parameters(), 1e-2)
x = torch.randn(9, 5)
skip = torch.tensor([False, False, True, False, True, False, True])
for i in range(3):
    logp = net(x).log_softmax(-1)
    loss = -forward_var(logp, skip)[-1]
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
