"""Log-returns with a missing price: the derivative of log at -1 is finite, nanmean drops the NaN."""

import torch

price = torch.tensor([10.0, 12.0, -1.0, 11.0], requires_grad=True)
loss = torch.nanmean(torch.log(price))
loss.backward()
print(loss.item(), price.grad)
