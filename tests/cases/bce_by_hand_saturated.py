# symptom: nan-loss
# phase: forward
# op: log
# cause: log-zero
# fix: stable-op
# or fix: epsilon (where fixes are tried: this one can be written here, the stable form is advice)
import torch
import torch.nn as nn

torch.manual_seed(0)


def bce(p, y):
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()  # <- culprit


features = torch.randn(32, 4)
features[9] *= 80.0  # an outlier
labels = (features[:, 0] > 0).float()
model = nn.Linear(4, 1)
with torch.no_grad():
    model.weight.copy_(torch.tensor([[2.0, 0.5, -0.5, 0.1]]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    p = torch.sigmoid(model(features)).squeeze(1)
    loss = bce(p, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
