# symptom: nan-grad
# phase: backward
# op: log10
# cause: masked-branch
# fix: masked-branch
import torch
import torch.nn.functional as F

torch.manual_seed(0)
to_db = lambda power: 10 * torch.log10(power)  # <- culprit # noqa: E731

wave = torch.randn(4, 64)
wave[2] = 0.0  # a silent clip
gain = torch.ones(64, requires_grad=True)

power = (wave * gain).square().mean(-1)
above_gate = F.relu(to_db(power) + 40.0)
loss = above_gate.mean()
loss.backward()
print(loss.item(), gain.grad.isnan().any().item())
