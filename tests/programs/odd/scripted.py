import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
x = torch.randn(3, 4)


@torch.jit.script
def smooth(x: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 0):
        return x.sigmoid()
    return x.tanh()


traced, scripted, graph = torch.jit.trace(net, x), torch.jit.script(net), torch.fx.symbolic_trace(net)
for _ in range(3):  # the profiling executor recompiles after the first runs
    for one in (traced, scripted, graph):
        net.zero_grad()
        loss = smooth(one(x)).mean()
        loss.backward()
        print(loss.item(), net[0].weight.grad.norm().item())
