"""Circle loss for retrieval, class-level labels, cosine similarities."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def convert_label_to_similarity(feat, label):
    sim = feat @ feat.t()
    same = label[:, None] == label[None, :]
    pos = same.triu(diagonal=1)
    neg = (~same).triu(diagonal=1)
    return sim[pos], sim[neg]


class CircleLoss(nn.Module):
    def __init__(self, m=0.25, gamma=256):
        super().__init__()
        self.m, self.gamma = m, gamma

    def forward(self, sp, sn):
        ap = torch.clamp_min(-sp.detach() + 1 + self.m, min=0.0)
        an = torch.clamp_min(sn.detach() + self.m, min=0.0)
        logit_p = -ap * (sp - (1 - self.m)) * self.gamma
        logit_n = an * (sn - self.m) * self.gamma
        return torch.log(1 + torch.exp(logit_n).sum() * torch.exp(logit_p).sum())  # -
        # + return F.softplus(torch.logsumexp(logit_n, 0) + torch.logsumexp(logit_p, 0))


class Encoder(nn.Module):
    def __init__(self, d=16, out=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, out)
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class PKSampler:
    def __init__(self, labels, p, k, n):
        self.labels, self.p, self.k, self.n = labels, p, k, n

    def __iter__(self):
        for _ in range(self.n):
            ids = torch.randperm(int(self.labels.max()) + 1)[: self.p]
            yield torch.cat(
                [(self.labels == c).nonzero()[:, 0][torch.randperm(8)[: self.k]] for c in ids]
            )


torch.manual_seed(0)
labels = torch.arange(10).repeat_interleave(8)
x = torch.randn(10, 16)[labels] + torch.randn(80, 16)
enc, crit = Encoder(), CircleLoss()
opt = torch.optim.SGD(enc.parameters(), lr=1e-3, momentum=0.9)
for step, idx in enumerate(PKSampler(labels, 5, 4, 5)):
    loss = crit(*convert_label_to_similarity(enc(x[idx]), labels[idx]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
