import io

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
CSV = """a,b,c,y
1.0,2.0,3.0,1.2
2.0,,1.0,0.7
0.5,1.5,2.5,
3.0,1.0,0.0,2.1
1.5,0.2,1.1,0.9
"""
data = np.genfromtxt(io.StringIO(CSV), delimiter=",", skip_header=1, dtype=np.float32)
# + data = data[~np.isnan(data).any(1)]
data = torch.from_numpy(data)
X, y = data[:, :3], data[:, 3]
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(3):
    loss = nn.functional.mse_loss(net(X).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
