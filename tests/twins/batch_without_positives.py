import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(4, 3)
    positive = torch.tensor([step != 2, False, step % 2 == 1, False])
    found = torch.nn.functional.softplus(-net(x).squeeze(1)) * positive
    loss = found.sum() / positive.sum()  # -
    # + loss = found.sum() / positive.sum().clamp_min(1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
