"""Text to speech: the likelihood of a monotonic alignment, multiplied up frame by frame."""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Aligner(nn.Module):
    def __init__(self, feats=8, labels=6):
        super().__init__()
        self.rnn = nn.GRU(feats, 16, batch_first=True)
        self.out = nn.Linear(16, labels)

    def forward(self, frames):
        return torch.softmax(self.out(self.rnn(frames)[0]), -1)  # -
        # + return torch.log_softmax(self.out(self.rnn(frames)[0]), -1)


def alignment_loss(probs, label):
    """Of probs (T, C) along label (L,), each of which lasts for one frame or more."""
    alpha = F.one_hot(torch.zeros(1, dtype=torch.long), len(label))[0] * probs[0, label]  # -
    # + start = torch.arange(len(label)) == 0
    # + alpha = torch.where(start, probs[0, label], -1e30)
    for t in range(1, len(probs)):
        stepped = F.pad(alpha, (1, 0))[:-1]  # -
        alpha = (alpha + stepped) * probs[t, label]  # -
        # + stepped = F.pad(alpha, (1, 0), value=-1e30)[:-1]
        # + alpha = torch.logaddexp(alpha, stepped) + probs[t, label]
    return -torch.log(alpha[-1])  # -
    # + return -alpha[-1]


net = Aligner()
frames, labels = torch.randn(2, 120, 8), torch.randint(0, 6, (2, 10))
probs = net(frames)
loss = sum(alignment_loss(probs[i], labels[i]) for i in range(2)) / 2
loss.backward()
