import torch
import torch.nn as nn

torch.manual_seed(0)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        mu, sigma = self.fc(x).chunk(2, -1)
        return mu, torch.relu(sigma)  # -
        # + return mu, torch.nn.functional.softplus(sigma)


def nll(mu, sigma, y):
    return (torch.log(sigma) + 0.5 * ((y - mu) / sigma) ** 2).mean()


head = Head()
x, y = torch.randn(9, 4), torch.randn(9, 1)
loss = nll(*head(x), y)
loss.backward()
