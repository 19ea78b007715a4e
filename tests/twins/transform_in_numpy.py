import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(8, 8)
        self.dec = nn.Linear(8, 8)

    def forward(self, x):
        h = torch.tanh(self.enc(x))
        z = torch.from_numpy(np.fft.fft(h.detach().numpy()).real.astype("float32"))  # -
        # + z = torch.fft.fft(h).real
        return self.dec(z)


net = Net()
opt = torch.optim.Adam(net.parameters())
x = torch.randn(16, 8)
for _ in range(3):
    loss = F.mse_loss(net(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
