import torch
from torch.autograd.graph import register_multi_grad_hook

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
seen = []


def say(name):
    return lambda *values: seen.append(name)


handles = [
    net[0].register_forward_pre_hook(say("before")),
    net[0].register_forward_hook(say("forward")),
    net[0].register_full_backward_pre_hook(say("before backward")),
    net[2].register_full_backward_hook(say("backward")),
    net[0].weight.register_hook(lambda grad: grad * 2),
    net[2].weight.register_post_accumulate_grad_hook(say("accumulated")),
    torch.nn.modules.module.register_module_forward_hook(say("global")),
    register_multi_grad_hook([net[0].bias, net[2].bias], say("both")),
]
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer.register_step_pre_hook(say("before step"))
optimizer.register_step_post_hook(say("after step"))
for _ in range(2):
    optimizer.zero_grad()
    hidden = net[1](net[0](torch.randn(5, 3)))
    hidden.retain_grad()
    hidden.grad_fn.register_hook(lambda into, out: seen.append(f"node {len(into)}"))
    hidden.grad_fn.register_prehook(lambda grads: tuple(g + 1 for g in grads))
    hidden.register_hook(lambda grad: grad.clamp(-1, 1))
    loss = net[2](hidden).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item(), hidden.grad.norm().item(), net[0].weight.grad.tolist())
for handle in handles:
    handle.remove()
print(seen)
