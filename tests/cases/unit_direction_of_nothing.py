# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: epsilon
# or fix: stable-op (where fixes are tried: `normalize` has the epsilon inside)
import torch
import torch.nn as nn

torch.manual_seed(0)


class Steering(nn.Module):
    """Turns a displacement into a unit heading."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(2, 2, bias=False)

    def forward(self, displacement):
        v = self.mix(displacement)
        return v / v.norm(dim=-1, keepdim=True)  # <- culprit


displacement = torch.randn(5, 2)
displacement[4] = 0.0  # parked
heading = torch.nn.functional.normalize(torch.randn(5, 2), dim=-1)
model = Steering()
loss = (1 - (model(displacement) * heading).sum(-1)).mean()
loss.backward()
print(loss.item(), model.mix.weight.grad)
