"""Blue whale call detector on top of a frozen, pretrained spectrogram encoder.

The first epochs use cached embeddings; afterwards the clips are mixed with ship noise on the fly.
"""

import torch
from torch import nn
from torch.nn import functional as F

SR, DUR, N_CLIPS, BATCH = 250, 8, 256, 32


def make_clips(n, generator):
    t = torch.arange(SR * DUR) / SR
    has_call = torch.randint(0, 2, (n,), generator=generator).float()
    start = 1 + 4 * torch.rand(n, 1, generator=generator)
    chirp = torch.sin(2 * torch.pi * (28 * t - 0.8 * t.square()))
    window = torch.exp(-((t - start - 1) / 0.8).square())
    noise = torch.randn(n, SR * DUR, generator=generator)
    return has_call[:, None] * chirp * window + 0.4 * noise, has_call


def log_spectrogram(wave):
    spec = torch.stft(wave, 128, 64, window=torch.hann_window(128), return_complex=True).abs()
    return torch.log1p(spec)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.freq = nn.Conv1d(65, dim, 3, padding=1)
        self.time = nn.Conv1d(dim, dim, 5, padding=2)

    def forward(self, spec):
        h = F.relu(self.time(F.relu(self.freq(spec))))
        return torch.cat([h.mean(-1), h.amax(-1)], dim=1)


def cached_batches(encoder, clips, labels):
    with torch.no_grad():
        emb = encoder(log_spectrogram(clips))
    for idx in torch.randperm(len(clips)).split(BATCH):
        yield emb[idx], labels[idx]


def noisy_batches(encoder, clips, labels, level):
    for idx in torch.randperm(len(clips)).split(BATCH):
        hum = torch.sin(
            2 * torch.pi * 17 * torch.arange(SR * DUR) / SR + 6.28 * torch.rand(len(idx), 1)
        )
        with torch.no_grad():
            emb = encoder(log_spectrogram(clips[idx] + level * hum))
            yield emb, labels[idx]  # -
        # + yield emb, labels[idx]


def run_epoch(head, optimizer, batches):
    losses, hits, seen = [], 0, 0
    for emb, y in batches:
        logit = head(emb).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logit, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        hits += ((logit > 0) == (y > 0.5)).sum().item()
        seen += len(y)
    return sum(losses) / len(losses), hits / seen


def main():
    torch.manual_seed(21)
    clips, labels = make_clips(N_CLIPS, torch.Generator().manual_seed(3))
    encoder = Encoder().eval().requires_grad_(False)
    head = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(head.parameters(), lr=8e-3)
    for epoch in range(8):
        if epoch < 3:
            stream = cached_batches(encoder, clips, labels)
        else:
            stream = noisy_batches(encoder, clips, labels, level=0.5)
        loss, acc = run_epoch(head, optimizer, stream)
        print(f"epoch {epoch}  bce {loss:.4f}  acc {acc:.3f}")


if __name__ == "__main__":
    main()
