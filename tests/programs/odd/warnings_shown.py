"""Warnings are about the same lines, however many calls up they say that is."""

import warnings

import torch


def show(message, category, filename, lineno, file=None, line=None):
    print(str(message)[:40], filename.rpartition("/")[2], lineno)


warnings.showwarning = show
weight = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)


class Warns(torch.nn.Module):
    def forward(self, x):
        for level in range(1, 5):
            warnings.warn(f"{level} up", stacklevel=level)
        return x


def closure():
    warnings.warn("closure", stacklevel=2)
    loss = Warns()(weight).sum()
    loss.backward()
    return loss


(weight * 2).sum().backward()
torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
optimizer.step(closure)
net = torch.nn.Linear(2, 2)
net.register_full_backward_hook(lambda *given: None)
net(torch.ones(1, 2)).sum().backward()
