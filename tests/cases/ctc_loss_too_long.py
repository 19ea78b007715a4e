# symptom: inf-loss
# phase: forward
# op: _ctc_loss
# cause: log-zero
# fix: stable-op
"""CTC with targets longer than the input."""

import torch

torch.manual_seed(0)
logits = torch.randn(4, 2, 5, requires_grad=True)
logp = logits.log_softmax(-1)
targets = torch.tensor([[1, 1, 2, 2, 3], [1, 2, 0, 0, 0]])
lengths = torch.tensor([4, 4]), torch.tensor([5, 2])
loss = torch.nn.functional.ctc_loss(logp, targets, *lengths)  # <- culprit
loss.backward()
print(loss.item(), logits.grad)
