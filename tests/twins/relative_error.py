import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
x = torch.randn(6, 2)
y = torch.tensor([1.0, 2.0, 0.0, 1.5, 0.5, 3.0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(6):
    error = (net(x).squeeze(1) - y).abs()
    loss = (error / y).mean()  # -
    # + loss = (error[y > 0] / y[y > 0]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
