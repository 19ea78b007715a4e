# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
import torch
import torch.nn as nn


class PhaseCorrelation(nn.Module):
    def forward(self, a, b):
        A, B = torch.fft.fft2(a), torch.fft.fft2(b)
        cross = A * B.conj()
        r = cross / cross.abs()  # <- culprit
        return torch.fft.ifft2(r).real


torch.manual_seed(0)
shift = nn.Conv2d(1, 1, 3, padding=1, bias=False)
a = torch.rand(1, 1, 8, 8)
b = torch.zeros(1, 1, 8, 8)
b[..., ::2, :] = 1.0
out = PhaseCorrelation()(shift(a), b)
loss = -out.amax()
loss.backward()
print(loss.item())
