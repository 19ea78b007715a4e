"""sqrt(relu(x)): at negative x the inf slope is thrown away by relu's backward."""

import torch

x = torch.tensor([-1.0, -0.5, 0.25, 4.0], requires_grad=True)
loss = torch.sqrt(torch.relu(x)).sum()
loss.backward()
print(loss.item(), x.grad)
