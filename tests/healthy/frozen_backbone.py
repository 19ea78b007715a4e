import torch
import torch.nn as nn

torch.manual_seed(0)

backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
backbone.requires_grad_(False).eval()
head = nn.Linear(4, 3)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        features = backbone(torch.rand(6, 3, 8, 8)).flatten(1)
    loss = nn.functional.cross_entropy(head(features), torch.randint(0, 3, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
