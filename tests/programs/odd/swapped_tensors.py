"""Parameters that change places under the optimizer, as `module.to()` of later torch does it."""

import torch

torch.manual_seed(0)
torch.__future__.set_swap_module_params_on_conversion(True)
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
one, other = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
for _ in range(4):
    optimizer.zero_grad()
    loss = net(torch.randn(2, 3)).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item(), net.weight.grad.norm().item())
    del loss
    net.double()
    net.float()
    net.load_state_dict(torch.nn.Linear(3, 3).state_dict())
    (one * 2 + other.square()).sum().backward()
    print(one.grad.tolist(), other.grad.tolist())
    one.grad = other.grad = None
    torch.utils.swap_tensors(one, other)
