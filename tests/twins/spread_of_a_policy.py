import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
x = torch.randn(8, 3)
mean, raw = net(x).unbind(-1)
spread = torch.nn.functional.softplus(raw - 60)  # -
# + spread = torch.nn.functional.softplus(raw - 60) + 0.1
action = torch.zeros(8)
loss = (((action - mean) / spread) ** 2 / 2 + spread.log()).mean()
loss.backward()
