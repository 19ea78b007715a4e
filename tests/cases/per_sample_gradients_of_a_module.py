# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""Gradients of each sample, as differential privacy clips them, by vmap over a module."""

import torch
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
parameters = dict(net.named_parameters())


def distance(parameters, sample, target):
    found = functional_call(net, parameters, (sample,))
    return (found - target).square().sum().sqrt()  # <- culprit


samples = torch.randn(4, 3)
targets = net(samples).detach() + torch.tensor([[0.0], [1.0], [2.0], [3.0]])
for step in range(2):
    each = vmap(grad(distance), in_dims=(None, 0, 0))(parameters, samples, targets)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter -= 0.01 * each[name].mean(0)
print(net.weight)
