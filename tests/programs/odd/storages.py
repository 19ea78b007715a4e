"""Memory that is freed, shared, and exchanged under the tensors, as sharded training does."""

import torch
import torch.utils.dlpack

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.randn(4, 4))
for _ in range(2):
    whole = weight.detach().clone().requires_grad_()
    out = (torch.ones(2, 4) @ whole).tanh()
    size = whole.untyped_storage().size()
    whole.untyped_storage().resize_(0)
    print(out.sum().item())
    whole.untyped_storage().resize_(size)
    with torch.no_grad():
        whole.copy_(weight)
    out.sum().backward()
    print(whole.grad.sum().item())
    weight.data = weight.data * 0.5
    weight.grad = whole.grad.clone()

array = torch.zeros(3).numpy()
tensor = torch.from_numpy(array)
array[1] = 2
again = torch.from_dlpack(tensor)
leaf = again.clone().requires_grad_()
(leaf.exp() * again).sum().backward()
print(leaf.grad.tolist(), again.data_ptr() == tensor.data_ptr())
shared = torch.ones(3).share_memory_()
other = torch.empty(0)
other.set_(shared.untyped_storage(), 0, (3,))
other.mul_(3)
print(shared.tolist(), shared.is_shared())
empty = torch.empty(0, 3, requires_grad=True)
(empty.sum() + empty.square().sum()).backward()
print(empty.grad.shape, torch.empty(3).resize_(2).shape)
