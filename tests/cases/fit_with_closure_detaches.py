# symptom: none-grad
# phase: forward
# op: detach
# cause: dead-gradient
# fix: graph
"""A loop that hands its step to the optimizer as a closure, and a model that cuts its own graph."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)).data)  # <- culprit


class Trainer:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters())

    def training_step(self, batch):
        x, y = batch
        return (self.net(x) - y).square().mean()

    def fit(self, batches):
        for batch in batches:

            def closure():
                loss = self.training_step(batch)
                self.optimizer.zero_grad()
                loss.backward()
                return loss

            self.optimizer.step(closure=closure)


Trainer(Net()).fit([(torch.randn(16, 3), torch.randn(16, 1)) for _ in range(5)])
