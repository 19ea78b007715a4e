import numpy  # -
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
w = torch.ones(4, requires_grad=True)
for _ in range(3):
    out = net(torch.randn(8, 4))
    arr = out.detach().cpu().numpy()  # -
    soft = numpy.log1p(numpy.exp(arr)) * numpy.pi  # -
    back = torch.tensor(soft.astype(numpy.float32))  # -
    # + arr = out
    # + soft = torch.log1p(torch.exp(arr)) * torch.pi
    # + back = soft
    loss = (back * w).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
