import torch
import torch.nn as nn

torch.manual_seed(0)
X = torch.randn(200, 4) * 30
y = (X[:, 0] + X[:, 1] > 0).float()


def sigmoid(z):
    return 1 / (1 + torch.exp(-z))


class LogisticRegression(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 1))
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return sigmoid(x @ self.w + self.b)  # -
        # + return x @ self.w + self.b


model = LogisticRegression()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    p = model(X).squeeze(1)
    loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()  # -
    # + loss = nn.functional.binary_cross_entropy_with_logits(p, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    right = (p > 0.5).float() == y  # -
    # + right = (p > 0).float() == y
    print(epoch, loss.item(), right.float().mean())
