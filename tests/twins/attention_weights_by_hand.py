import torch
import torch.nn as nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.score = nn.Linear(d, 1)

    def forward(self, h, lengths):
        mask = (torch.arange(h.size(1))[None] < lengths[:, None]).float()
        e = torch.exp(self.score(h).squeeze(-1) * 300)  # -
        e = e * mask  # -
        a = e / e.sum(1, keepdim=True)  # -
        # + e = self.score(h).squeeze(-1) * 300
        # + a = torch.softmax(e.masked_fill(mask == 0, float("-inf")), dim=1)
        return (a.unsqueeze(-1) * h).sum(1)


pool = Pool(6)
h = torch.randn(4, 7, 6) * 4
loss = pool(h, torch.tensor([7, 3, 2, 5])).pow(2).mean()
loss.backward()
