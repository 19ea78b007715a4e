import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
x = torch.randn(8, 4) * 300
y = torch.randint(0, 3, (8,))
p = torch.softmax(net(x), -1)  # -
picked = p[torch.arange(8), y]  # -
loss = -picked.log().mean()  # -
# + log_p = torch.log_softmax(net(x), -1)
# + picked = log_p[torch.arange(8), y]
# + loss = -picked.mean()
loss.backward()
