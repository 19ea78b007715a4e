import torch

torch.manual_seed(0)


def nce(q, k, t=0.02):
    sim = torch.exp(q @ k.t() / t)  # -
    # + sim = torch.log_softmax(q @ k.t() / t, dim=1)
    pos = sim.diag()
    return -torch.log(pos / sim.sum(dim=1)).mean()  # -
    # + return -pos.mean()


q = torch.randn(4, 16, requires_grad=True)
k = torch.randn(4, 16)
loss = nce(q, k)
loss.backward()
