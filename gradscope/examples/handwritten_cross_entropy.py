"""log(softmax(z)): the softmax underflows to 0 and its log is -inf.

`log_softmax` never leaves the log domain and gives -120 where this gives -inf.
"""
# expects: log-zero

import torch

logits = torch.tensor([[120.0, 0.0, -5.0], [1.0, 2.0, 3.0]], requires_grad=True)
labels = torch.tensor([1, 2])

probabilities = torch.softmax(logits, dim=1)
loss = -torch.log(probabilities)[torch.arange(2), labels].mean()
loss.backward()

print("loss", loss.item())
print("grad", logits.grad)
