# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
import torch
import torch.nn as nn

torch.manual_seed(0)


class DurationModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 12, batch_first=True)
        self.head = nn.Linear(12, 1)

    def forward(self, phones, present):
        hidden, _ = self.gru(phones)
        return self.head(hidden).squeeze(-1).exp() * present


def log_duration_loss(pred, frames, length):
    gap = torch.log(pred) - torch.log(frames)  # <- culprit
    return sum(g[:n].square().mean() for g, n in zip(gap, length, strict=True))


length = [5, 3]
present = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
model = DurationModel()
pred = model(torch.randn(2, 5, 6), present)
frames = torch.randint(1, 9, (2, 5)).float()
loss = log_duration_loss(pred, frames, length)
loss.backward()
print(loss.item(), model.head.weight.grad.norm().item())
