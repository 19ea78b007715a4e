"""A target longer than its input, which zero_infinity is there for."""

import torch

torch.manual_seed(0)
logits = torch.randn(4, 2, 5, requires_grad=True)
targets = torch.tensor([[1, 1, 2, 2, 3], [1, 2, 0, 0, 0]])
lengths = torch.tensor([4, 4]), torch.tensor([5, 2])
loss = torch.nn.CTCLoss(zero_infinity=True)(logits.log_softmax(-1), targets, *lengths)
loss.backward()
print(loss.item())
