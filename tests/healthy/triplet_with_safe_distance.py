import torch
import torch.nn as nn

torch.manual_seed(0)

encoder = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
criterion = nn.TripletMarginLoss()
for _ in range(3):
    anchor = torch.randn(8, 6)
    positive = anchor.clone()  # the same image twice: distance 0, kept off by eps
    negative = torch.randn(8, 6)
    a, p, n = encoder(anchor), encoder(positive), encoder(negative)
    spread = torch.cdist(a, a).mean() + a.norm(dim=1).mean()
    loss = criterion(a, p, n) + 0.01 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
