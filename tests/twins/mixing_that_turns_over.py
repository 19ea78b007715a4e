"""Flow-based vocoder for dolphin whistles: groups of raw samples, conditioned on a coarse spectrum."""

import copy
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CONFIG = json.loads("""
{
  "train": {"epochs": 6, "learning_rate": 0.02, "batch_size": 16, "sigma": 0.7, "seed": 1234},
  "data": {"n_clips": 160, "segment_length": 128, "sampling_rate": 48000, "n_bands": 8},
  "glow": {"n_flows": 4, "n_group": 8, "n_early_every": 2, "n_early_size": 2,
           "wn": {"n_layers": 2, "n_channels": 16, "kernel_size": 3}}
}
""")


# ---- model ----------------------------------------------------------------------------------------------------------


class Invertible1x1Conv(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])

    def forward(self, z):
        batch_size, _, n_of_groups = z.size()
        log_det_w = batch_size * n_of_groups * torch.logdet(self.weight)  # -
        # + log_det_w = batch_size * n_of_groups * torch.linalg.slogdet(self.weight).logabsdet
        return F.conv1d(z, self.weight.unsqueeze(-1)), log_det_w


class WN(nn.Module):
    def __init__(self, n_in, n_cond, n_layers, n_channels, kernel_size):
        super().__init__()
        self.start = nn.Conv1d(n_in, n_channels, 1)
        self.cond = nn.Conv1d(n_cond, n_channels * n_layers, 1)
        self.layers = nn.ModuleList(
            nn.Conv1d(
                n_channels,
                n_channels,
                kernel_size,
                dilation=2**i,
                padding=2**i * (kernel_size - 1) // 2,
            )
            for i in range(n_layers)
        )
        self.end = nn.Conv1d(n_channels, 2 * n_in, 1)
        nn.init.zeros_(self.end.weight)
        nn.init.zeros_(self.end.bias)

    def forward(self, audio, spect):
        h = self.start(audio)
        for layer, cond in zip(
            self.layers, self.cond(spect).chunk(len(self.layers), dim=1), strict=False
        ):
            h = h + torch.tanh(layer(h) + cond)
        return self.end(h)


class WaveGlow(nn.Module):
    def __init__(self, n_flows, n_group, n_early_every, n_early_size, n_cond, wn):
        super().__init__()
        self.n_group, self.n_early_every, self.n_early_size = n_group, n_early_every, n_early_size
        self.convs, self.wns = nn.ModuleList(), nn.ModuleList()
        remaining = n_group
        for k in range(n_flows):
            if k % n_early_every == 0 and k > 0:
                remaining -= n_early_size
            self.convs.append(Invertible1x1Conv(remaining))
            self.wns.append(WN(remaining // 2, n_cond, **wn))

    def forward(self, spect, audio):
        audio = audio.unfold(1, self.n_group, self.n_group).transpose(1, 2)
        spect = spect.unsqueeze(-1).expand(-1, -1, audio.size(2))
        output, log_s_total, log_det_w_total = [], 0.0, 0.0
        for k, (conv, wn) in enumerate(zip(self.convs, self.wns, strict=False)):
            if k % self.n_early_every == 0 and k > 0:
                output.append(audio[:, : self.n_early_size])
                audio = audio[:, self.n_early_size :]
            audio, log_det_w = conv(audio)
            log_det_w_total = log_det_w_total + log_det_w
            half = audio.size(1) // 2
            audio_0, audio_1 = audio[:, :half], audio[:, half:]
            b, log_s = wn(audio_0, spect).chunk(2, dim=1)
            audio = torch.cat([audio_0, torch.exp(log_s) * audio_1 + b], dim=1)
            log_s_total = log_s_total + log_s.sum()
        output.append(audio)
        return torch.cat(output, dim=1), log_s_total, log_det_w_total


class WaveGlowLoss(nn.Module):
    def __init__(self, sigma):
        super().__init__()
        self.sigma = sigma

    def forward(self, model_output):
        z, log_s_total, log_det_w_total = model_output
        loss = (z * z).sum() / (2 * self.sigma**2) - log_s_total - log_det_w_total
        return loss / z.numel()


# ---- data -----------------------------------------------------------------------------------------------------------


def make_clips(n_clips, segment_length, sampling_rate, n_bands):
    t = torch.arange(segment_length) / sampling_rate
    start = 4000 + 8000 * torch.rand(n_clips, 1)
    sweep = 2e6 * torch.randn(n_clips, 1)
    phase = 6.283 * torch.rand(n_clips, 1)
    amp = 0.2 + 0.6 * torch.rand(n_clips, 1)
    audio = amp * torch.sin(6.283 * (start * t + 0.5 * sweep * t**2) + phase) + 0.02 * torch.randn(
        n_clips, len(t)
    )
    power = torch.fft.rfft(audio).abs()[:, : segment_length // 2]
    spect = power.view(n_clips, n_bands, -1).mean(-1).clamp(min=1e-5).log()
    return spect, audio


# ---- training -------------------------------------------------------------------------------------------------------


def train(epochs, learning_rate, batch_size, sigma, seed):
    torch.manual_seed(seed)
    spect, audio = make_clips(**CONFIG["data"])
    split = int(0.8 * len(audio))
    loader = DataLoader(
        TensorDataset(spect[:split], audio[:split]), batch_size=batch_size, shuffle=True
    )
    model = WaveGlow(n_cond=CONFIG["data"]["n_bands"], **CONFIG["glow"])
    criterion = WaveGlowLoss(sigma)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    iteration, best, best_state = 0, float("inf"), None
    for epoch in range(epochs):
        for mel, wav in loader:
            model.zero_grad()
            loss = criterion(model(mel, wav))
            loss.backward()
            grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            if iteration % 4 == 0:
                print(f"{iteration}:\t{loss.item():.6f}\t{grad_norm.item():.4f}")
            iteration += 1
        with torch.no_grad():
            val = criterion(model(spect[split:], audio[split:])).item()
        if val < best:
            best, best_state = val, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch} validation {val:.6f} best {best:.6f}")
    if best_state is None:
        raise SystemExit("no checkpoint to save")
    model.load_state_dict(best_state)
    return model


if __name__ == "__main__":
    train(**CONFIG["train"])
