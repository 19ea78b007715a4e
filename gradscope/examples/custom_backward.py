"""A hand-written backward is wrong, and training diverges.

The backward repeats the mean of all residuals for every element, where each element's own residual
over N is right. Nothing is nan at first: the loss climbs 884, 3471, 4.8e10, 1.7e33, inf, nan.
"""
# expects: bad-custom-backward

import torch
from torch import nn

torch.manual_seed(42)


class MeanSquaredError(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predicted, y):
        ctx.save_for_backward(predicted, y)
        return ((y - predicted) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_output):
        predicted, y = ctx.saved_tensors
        return (-2 * (y - predicted)).mean().expand_as(predicted), None


model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))
x = torch.arange(100.0).unsqueeze(1)
y = 2 + 0.5 * x + torch.rand(100, 1)

optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.1)
for _epoch in range(25):
    loss = MeanSquaredError.apply(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"loss {loss.item():.4g}")
