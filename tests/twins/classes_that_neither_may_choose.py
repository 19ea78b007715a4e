import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
teacher = nn.Linear(10, 6)
student = nn.Linear(10, 6)
mask = torch.zeros(6, dtype=torch.bool)
mask[4:] = True
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(32, 10)
    with torch.no_grad():
        t = F.log_softmax(teacher(x).masked_fill(mask, -torch.inf), -1)  # -
        # + t = F.log_softmax(teacher(x).masked_fill(mask, -1e9), -1)
    s = F.log_softmax(student(x).masked_fill(mask, -torch.inf), -1)  # -
    # + s = F.log_softmax(student(x).masked_fill(mask, -1e9), -1)
    loss = F.kl_div(s, t, log_target=True, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
