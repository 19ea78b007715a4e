# symptom: inf-loss
# phase: forward
# op: log
# cause: log-zero
# fix: stable-op
# or fix: epsilon (where fixes are tried: this one can be written here, the stable form is advice)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 5)

    def forward(self, x):
        return F.softmax(self.fc(x), dim=-1).to(torch.float16)


x = torch.randn(8, 10)
x[4] *= 40
probs = Head()(x)
target = probs.argmin(-1)
loss = -probs.log().gather(1, target[:, None]).mean()  # <- culprit
loss.backward()
print(loss.item())
