import torch
import torch.nn as nn

torch.manual_seed(0)
encoder, head = nn.Linear(4, 3), nn.Linear(3, 1)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)
for _ in range(6):
    hidden = torch.tanh(encoder(torch.randn(8, 4)))
    middle = hidden.detach().requires_grad_()
    loss = (head(middle) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    hidden.backward(middle.grad)
    optimizer.step()
    print(loss.item())
