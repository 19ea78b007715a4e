"""Frame-level phone classifier on synthetic formant tracks."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)

PHONES = ["sil", "aa", "iy", "uw", "s", "m"]
PRIOR = torch.tensor([0.45, 0.15, 0.14, 0.08, 0.10, 0.08])
FORMANTS = torch.tensor([[0, 0], [7, 12], [3, 23], [3, 9], [30, 34], [2, 11]]).float()
ENERGY = torch.tensor([0.05, 1.0, 0.9, 0.8, 0.5, 0.6])
N_MELS, FRAMES = 40, 60


def utterance():
    labels = []
    while len(labels) < FRAMES:
        phone = torch.multinomial(PRIOR, 1).item()
        labels += [phone] * int(torch.randint(4, 12, ()))
    labels = torch.tensor(labels[:FRAMES])
    mel = torch.arange(N_MELS).float()
    f = FORMANTS[labels] + 0.7 * torch.randn(FRAMES, 2)
    spec = torch.exp(-0.5 * ((mel - f[:, :, None]) / 1.8) ** 2).sum(1) * ENERGY[labels][:, None]
    return (spec + 0.25 * torch.randn(FRAMES, N_MELS)).T, labels


def corpus(n):
    specs, labels = zip(*(utterance() for _ in range(n)), strict=False)
    return torch.stack(specs), torch.stack(labels)


class TDNN(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.l1 = nn.Conv1d(N_MELS, width, 5, padding=2)
        self.l2 = nn.Conv1d(width, width, 3, padding=2, dilation=2)
        self.proj = nn.Conv1d(width, len(PHONES), 1)

    def forward(self, mel):
        h = F.relu(self.l1(mel))
        h = F.relu(self.l2(h))
        return F.log_softmax(self.proj(h), dim=-1)  # -
        # + return F.log_softmax(self.proj(h), dim=1)


def frame_error(model, specs, labels):
    model.eval()
    with torch.no_grad():
        fer = (model(specs).argmax(1) != labels).float().mean().item()
    model.train()
    return fer


def train():
    train_x, train_y = corpus(160)
    dev_x, dev_y = corpus(40)
    model = TDNN()
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(10):
        total = 0.0
        for idx in torch.randperm(len(train_x)).split(16):
            loss = F.nll_loss(model(train_x[idx]), train_y[idx])
            optim.zero_grad()
            loss.backward()
            optim.step()
            total += loss.item() * len(idx)
        print(
            f"epoch {epoch}: nll {total / len(train_x):.3f}  dev frame error {frame_error(model, dev_x, dev_y):.3f}"
        )


train()
