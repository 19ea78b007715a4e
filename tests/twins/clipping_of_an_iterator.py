import torch
from torch import nn


class Trainer:
    def __init__(self, net, lr=0.2):
        self.net = net
        self.trainable = filter(lambda p: p.requires_grad, net.parameters())  # -
        # + self.trainable = list(filter(lambda p: p.requires_grad, net.parameters()))
        self.optimizer = torch.optim.SGD(self.trainable, lr=lr)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trainable, 0.5)
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
net[0].bias.requires_grad_(False)
trainer = Trainer(net)
for step in range(25):
    x = torch.randn(32, 6)
    y = 10 * x.sum(1, keepdim=True)
    print(step, trainer.step(x, y))
