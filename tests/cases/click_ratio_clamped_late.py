# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
import torch

torch.manual_seed(3)

clicks = torch.tensor([3.0, 0.0, 5.0, 2.0])
views = torch.tensor([10.0, 0.0, 8.0, 0.0])
click_gain = torch.ones(4, requires_grad=True)
view_gain = torch.ones(4, requires_grad=True)

rate = (clicks + 1) * click_gain / (views * view_gain)  # <- culprit
rate = rate.clamp(0.0, 1.0)
loss = (rate - 0.4).pow(2).sum()
loss.backward()
print(loss.item(), click_gain.grad, view_gain.grad)
