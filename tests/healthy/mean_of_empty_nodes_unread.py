"""Scatter-mean with nodes that nobody sends to; they are overwritten before anything reads them."""

import torch


def scatter_mean(messages, index, size):
    total = torch.zeros(size, messages.size(1)).index_add(0, index, messages)
    count = torch.zeros(size, 1).index_add(0, index, torch.ones(len(index), 1))
    return total / count


features = torch.arange(8.0).view(4, 2).requires_grad_()
source, target = torch.tensor([[0, 1, 2], [1, 0, 1]])
gathered = scatter_mean(features[source], target, 4)
lonely = torch.ones(4, dtype=torch.bool)
lonely[target] = False
out = gathered.clone()
out[lonely] = features[lonely]
loss = out.square().mean()
loss.backward()
print(loss.item(), features.grad)
