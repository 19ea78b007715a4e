import torch
import torch.nn as nn

torch.manual_seed(0)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * (1 - s))  # -
        # + return g * (s + x * s * (1 - s))


net1, net2 = nn.Linear(4, 16), nn.Linear(16, 1)
x = torch.randn(32, 4)
y = x.prod(1, keepdim=True)
opt = torch.optim.Adam([*net1.parameters(), *net2.parameters()], 1e-2)
for i in range(5):
    loss = (net2(Swish.apply(net1(x))) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
