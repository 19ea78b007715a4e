"""Per-beat arrhythmia labels on partly annotated ECG beat sequences. Cross-entropy is a hand-written
autograd function (log-probabilities are never materialised twice)."""

import numpy as np
import torch
from torch import nn

N_CLASSES, D_BEAT, MAX_LEN = 4, 10, 16


class BeatXent(torch.autograd.Function):
    """logits [N, C], target [N] -> loss [N]"""

    @staticmethod
    def forward(ctx, logits, target):
        lse = torch.logsumexp(logits, dim=1, keepdim=True)
        prob = torch.exp(logits - lse)
        ctx.save_for_backward(prob, target)
        return (lse - logits.gather(1, target[:, None])).squeeze(1)

    @staticmethod
    def backward(ctx, grad_output):
        prob, target = ctx.saved_tensors
        grad = prob.clone()
        grad[torch.arange(len(target)), target] -= 1.0
        return grad, None  # -
        # + return grad * grad_output[:, None], None


def masked_loss(logits, target, mask):
    per_beat = BeatXent.apply(logits.reshape(-1, N_CLASSES), target.reshape(-1))
    m = mask.reshape(-1)
    return (per_beat * m).sum() / m.sum()


class BeatTagger(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(D_BEAT, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, N_CLASSES)

    def forward(self, x):
        h, _ = self.gru(x)
        return self.out(h)


def make_records(n, rng):
    proto = rng.normal(size=(N_CLASSES, D_BEAT))
    x = np.zeros((n, MAX_LEN, D_BEAT), np.float32)
    y = np.zeros((n, MAX_LEN), np.int64)
    mask = np.zeros((n, MAX_LEN), np.float32)
    for i in range(n):
        m = rng.integers(3, 9)
        beat = rng.choice(N_CLASSES, size=MAX_LEN, p=[0.3, 0.3, 0.2, 0.2])
        x[i] = proto[beat] + 1.2 * rng.normal(size=(MAX_LEN, D_BEAT))
        start = rng.integers(0, MAX_LEN - m)
        y[i, start : start + m] = beat[start : start + m]
        mask[i, start : start + m] = 1.0  # only this stretch was read by the cardiologist
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(mask)


def evaluate(model, x, y, mask):
    model.eval()
    with torch.no_grad():
        hit = (model(x).argmax(-1) == y).float() * mask
    return (hit.sum() / mask.sum()).item()


def main():
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    x, y, mask = make_records(128, rng)
    model = BeatTagger()
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for epoch in range(15):
        model.train()
        tot = 0.0
        for idx in torch.randperm(len(x)).split(32):
            loss = masked_loss(model(x[idx]), y[idx], mask[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            tot += loss.item() * len(idx)
        print(
            f"epoch {epoch:2d}  loss {tot / len(x):.4f}  beat acc {evaluate(model, x, y, mask):.3f}"
        )


if __name__ == "__main__":
    main()
