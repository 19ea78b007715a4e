import torch

torch.manual_seed(0)
base = torch.randn(4, 4, requires_grad=True)
work = base * 1
work[1].mul_(2)
work[:, 2] = work[:, 0].exp()
view = work.view(2, 8)[0]
view.add_(1).mul_(0.5)
work.diagonal().zero_()
left, right = work[:, :2], work[:, 2:]
right[...] = left.flip(0).tanh()
loss = work.square().sum()
print(loss.grad_fn.name(), work.grad_fn.name(), view.grad_fn.name(), work._version)
loss.backward()
print(loss.item(), base.grad.tolist())

flat = torch.zeros(10)
parts = [flat[:4].view(2, 2), flat[4:]]
with torch.no_grad():
    for part in parts:
        part.copy_(torch.randn(part.shape))
leaves = [torch.nn.Parameter(part) for part in parts]
optimizer = torch.optim.SGD(leaves, lr=0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad(set_to_none=False)
    (leaves[0].prod() * leaves[1].sum()).backward()
    optimizer.step()
print(flat.tolist(), leaves[0].data_ptr() == flat.data_ptr())
with torch.no_grad():
    out = torch.empty(3)
    torch.mul(torch.arange(3.0), 2, out=out)
    flat[:3].copy_(out).clamp_(0, 1)
print(flat.tolist())
