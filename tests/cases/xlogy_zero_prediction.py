# symptom: inf-loss
# phase: forward
# op: xlogy
# cause: underflow
# fix: epsilon
# or fix: stable-op (where fixes are tried: the logarithm of the softmax is exact)
import torch

torch.manual_seed(0)
truth = torch.tensor([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
scores = torch.tensor([[150.0, 0.0, 0.0], [1.0, 0.0, 0.0]], requires_grad=True)
probs = torch.nn.functional.softmax(scores, dim=-1)
loss = -torch.special.xlogy(truth, probs).sum(-1).mean()  # <- culprit
loss.backward()
print(loss.item())
