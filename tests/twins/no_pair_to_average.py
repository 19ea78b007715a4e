import torch
import torch.nn as nn
import torch.nn.functional as F


class Embedder(nn.Module):
    def __init__(self, n_in=12, n_out=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 24), nn.ReLU(), nn.Linear(24, n_out))

    def forward(self, x):
        return F.normalize(self.body(x), dim=1)


def pair_loss(emb, ids):
    terms = []
    for i in range(len(ids)):
        for j in range(i + 1, len(ids)):
            if ids[i] == ids[j]:
                apart = emb[i] - emb[j]
                terms.append(apart.pow(2).sum())
    return torch.stack(terms).mean()  # -
    # + return torch.stack(terms).mean() if terms else emb.sum() * 0


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(4)
    net = Embedder()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    centres = torch.randn(40, 12, generator=gen)
    for step in range(30):
        ids = torch.randint(0, 40, (9,), generator=gen)
        x = centres[ids] + 0.3 * torch.randn(9, 12, generator=gen)
        loss = pair_loss(net(x), ids)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
