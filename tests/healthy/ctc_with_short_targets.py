import torch
import torch.nn as nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 7))
ctc = nn.CTCLoss(zero_infinity=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    logp = net(torch.randn(9, 2, 5)).log_softmax(-1)
    targets = torch.tensor([[1, 2, 2, 3], [4, 5, 0, 0]])
    loss = ctc(logp, targets, torch.tensor([9, 9]), torch.tensor([4, 2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
