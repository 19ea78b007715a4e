# symptom: nan-loss
# phase: data
# op: convolution
# cause: bad-input
# fix: data
"""ECG training from a binary file; record 13 is damaged."""

import struct

import torch
import torch.nn as nn

torch.manual_seed(0)


def recording(number, length=24):
    samples = [((number * 7 + i * 3) % 11) / 11 - 0.5 for i in range(length)]
    raw = bytearray(struct.pack(f"<{length}f", *samples))
    if number == 13:
        raw[20:24] = b"\xff\xff\xff\xff"
    return torch.frombuffer(raw, dtype=torch.float32).clone()


class Beat(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 5)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean(-1))  # <- culprit


net = Beat()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(6):
    batch = torch.stack([recording(3 * step + k) for k in range(3)]).unsqueeze(1)
    label = torch.tensor([0, 1, step % 2])
    loss = nn.functional.cross_entropy(net(batch), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
