import torch
import torch.nn as nn

torch.manual_seed(0)
data = torch.randn(120, 6)
X = data[:, :5]
y = (data[:, 5] + data[:, 0] > 0).float()
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1), nn.Sigmoid())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    p = model(X)  # -
    # + p = model(X).squeeze(-1)
    loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
    acc = ((p > 0.5).float() == y).float().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item(), acc.item())
