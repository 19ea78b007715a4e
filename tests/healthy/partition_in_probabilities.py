"""A CRF whose forward algorithm multiplies probabilities and takes the logarithm at the end: what
grows forwards shrinks the gradient, and what weights get of both is of ordinary size."""

import torch
from torch import nn

torch.manual_seed(0)


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.trans = nn.Parameter(0.3 * torch.randn(tags, tags))

    def forward(self, emissions, tags, mask):
        alpha = emissions[:, 0].exp()
        for t in range(1, emissions.size(1)):
            step = torch.einsum("bi,ij->bj", alpha, self.trans.exp()) * emissions[:, t].exp()
            alpha = torch.where(mask[:, t, None], step, alpha)
        taken = emissions.gather(2, tags[..., None]).squeeze(-1) * mask
        moved = self.trans[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        return (alpha.sum(-1).log() - taken.sum(1) - moved.sum(1)).mean()


embedding, crf = nn.Embedding(50, 7), CRF(7)
optimizer = torch.optim.Adam([*embedding.parameters(), *crf.parameters()], lr=1e-2)
for step in range(6):
    length = 26 + step
    words, tags = torch.randint(0, 50, (8, length)), torch.randint(0, 7, (8, length))
    mask = torch.arange(length)[None] < torch.linspace(9, length, 8)[:, None]
    loss = crf(0.3 * embedding(words), tags, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
