"""Linear-chain CRF tagger, forward algorithm by hand with padding."""
import torch
from torch import nn


class CRF(nn.Module):
    def __init__(self, tags, pad=0):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)
        with torch.no_grad():
            self.transitions[pad, :] = float("-inf")  # -
            self.transitions[:, pad] = float("-inf")  # -
            # + self.transitions[pad, :] = -10000.0
            # + self.transitions[:, pad] = -10000.0
        self.start = nn.Parameter(torch.zeros(tags))

    def partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            scores = alpha[:, :, None] + self.transitions + emissions[:, t, None, :]
            new = torch.logsumexp(scores, dim=1)
            alpha = torch.where(mask[:, t, None], new, alpha)
        return torch.logsumexp(alpha, 1)

    def score(self, emissions, tags, mask):
        total = self.start[tags[:, 0]] + emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, emissions.size(1)):
            step = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[:, t].gather(1, tags[:, t:t + 1]).squeeze(1)
            total = total + step * mask[:, t]
        return total

    def forward(self, emissions, tags, mask):
        return (self.partition(emissions, mask) - self.score(emissions, tags, mask)).mean()


class Tagger(nn.Module):
    def __init__(self, vocab=30, tags=5, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(2 * dim, tags)
        self.crf = CRF(tags)

    def loss(self, words, tags):
        h, _ = self.lstm(self.emb(words))
        return self.crf(self.proj(h), tags, words != 0)


torch.manual_seed(1)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(5):
    words = torch.randint(1, 30, (4, 7))
    tags = torch.randint(1, 5, (4, 7))
    words[1, 5:] = 0
    tags[1, 5:] = 0
    loss = model.loss(words, tags)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
