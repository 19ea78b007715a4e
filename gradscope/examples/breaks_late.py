"""A training loop that is healthy for seventeen steps and breaks at step 17.

Batch 17 holds a blank image. Its contrast is 0, and the model takes the log of it.
"""
# expects: log-zero

import torch
from torch import nn

torch.manual_seed(0)


def batches():
    for number in range(24):
        images = torch.rand(8, 1, 6, 6)
        if number == 17:
            images[5] = 0.25
        yield images, torch.randint(0, 3, (8,))


class ContrastClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU())
        self.head = nn.Linear(17, 3)

    def forward(self, images):
        contrast = images.amax((1, 2, 3)) - images.amin((1, 2, 3))
        features = torch.cat([self.body(images), contrast.log()[:, None]], dim=1)
        return self.head(features)


model = ContrastClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (images, labels) in enumerate(batches()):
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
