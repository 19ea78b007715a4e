import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
x = torch.randn(16, 3)
x[5] *= 400
y = (x[:, 0] > 0).float()
y[5] = 1 - (net(x[5]) > 0).float()
p = torch.sigmoid(net(x)).squeeze(1)  # -
loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()  # -
# + z = net(x).squeeze(1)
# + loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
loss.backward()
