import torch
from torch._subclasses.fake_tensor import FakeTensorMode

torch.manual_seed(0)
with torch.device("meta"):
    plan = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
shape = plan(torch.empty(3, 4, device="meta")).sum()
shape.backward()
print(shape, plan[0].weight.grad.shape, plan[0].weight.grad.device)

with FakeTensorMode() as mode:
    fake = torch.nn.Linear(4, 2)
    out = fake(torch.randn(3, 4)).square().sum()
    out.backward()
    print(type(out).__name__, out.shape, fake.weight.grad.shape)
converted = mode.from_tensor(torch.ones(2))
print(type(converted).__name__, converted.device)

plan.zero_grad()
real = plan.to_empty(device="cpu")
for module in real:
    module.reset_parameters()
loss = real(torch.randn(3, 4)).square().mean()
loss.backward()
print(loss.item(), real[0].weight.grad.norm().item())
