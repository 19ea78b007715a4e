"""CTC line recogniser on toy strips; a few targets are longer than the input (zero_infinity drops them)."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CHARS = "-abcd"  # index 0 is the blank
GLYPHS = torch.tensor(
    [[1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1.0]]
)


class Lines(Dataset):
    def __init__(self, n, seed, broken=True):
        g = torch.Generator().manual_seed(seed)
        self.samples = []
        for i in range(n):
            k = int(torch.randint(1, 5, (1,), generator=g))
            text = torch.randint(1, 5, (k,), generator=g)
            cols = []
            for c in text:
                reps = int(torch.randint(1, 4, (1,), generator=g))
                cols += [GLYPHS[c - 1]] * reps + [torch.zeros(6)]
            strip = torch.stack(cols)
            if broken and i % 25 == 0:  # truncated scan: the label no longer fits
                strip, text = strip[:1], torch.tensor([1, 1, 2, 3])
            self.samples.append((strip + 0.15 * torch.randn(strip.shape, generator=g), text))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def collate(batch):
    xs, ys = zip(*batch)
    x = nn.utils.rnn.pad_sequence(xs)  # T, B, F
    return {
        "x": x,
        "x_len": torch.tensor([len(v) for v in xs]),
        "y": torch.cat(ys),
        "y_len": torch.tensor([len(v) for v in ys]),
    }


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 24, 3, padding=1)
        self.rnn = nn.GRU(24, 24, bidirectional=True)
        self.fc = nn.Linear(48, len(CHARS))

    def forward(self, x):
        h = F.relu(self.conv(x.permute(1, 2, 0))).permute(2, 0, 1)
        return self.fc(self.rnn(h)[0]).log_softmax(-1)


def greedy(lp, lengths):
    out = []
    for b, n in enumerate(lengths):
        ids = torch.unique_consecutive(lp[:n, b].argmax(-1))
        out.append([i for i in ids.tolist() if i])
    return out


def exact_match(model, loader):
    model.eval()
    hit = n = 0
    with torch.no_grad():
        for b in loader:
            ref = [t.tolist() for t in b["y"].split(b["y_len"].tolist())]
            hyp = greedy(model(b["x"]), b["x_len"].tolist())
            hit, n = hit + sum(r == h for r, h in zip(ref, hyp)), n + len(ref)
    model.train()
    return hit / n


def main():
    torch.manual_seed(3)
    train = DataLoader(Lines(500, 0), 25, shuffle=True, collate_fn=collate)
    test = DataLoader(Lines(150, 1, broken=False), 50, collate_fn=collate)
    model = CRNN()
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    opt = torch.optim.Adam(model.parameters(), lr=6e-3)
    print("exact match before", exact_match(model, test))
    for epoch in range(6):
        total = 0
        for b in train:
            lp = model(b["x"])
            with torch.no_grad():  # for the log only: how many would be infinite
                raw = F.ctc_loss(lp, b["y"], b["x_len"], b["y_len"], reduction="none")
            loss = ctc(lp, b["y"], b["x_len"], b["y_len"])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            total += loss.item()
        if epoch % 2 == 1:
            print(
                f"epoch {epoch} loss {total / len(train):.4f} infinite in last batch {int(raw.isinf().sum())}"
            )
    print("exact match after", exact_match(model, test))


if __name__ == "__main__":
    main()
