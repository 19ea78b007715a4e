# symptom: inf-loss
# phase: forward
# op: log10
# cause: log-zero
# fix: epsilon
"""Log-spectral distance. 1e-6 is added to the logarithm and not to its argument."""

import torch
import torch.nn as nn

torch.manual_seed(0)


def log_power(signal):
    frames = signal.unfold(-1, 16, 8)
    power = torch.fft.rfft(frames).abs().square()
    return torch.log10(power) + 1e-6  # <- culprit


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 5, padding=2)

    def forward(self, x):
        return self.conv(x.unsqueeze(1)).squeeze(1)


clean = torch.randn(2, 64)
clean[0, 20:44] = 0.0
model = Denoiser()
loss = (log_power(model(clean + 0.1 * torch.randn(2, 64))) - log_power(clean)).abs().mean()
loss.backward()
print(loss.item())
