# slow: compiles
import sys

import torch

torch.manual_seed(0)
backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.LayerNorm(12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
fast = torch.compile(net, backend=backend, fullgraph=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.compile(backend=backend)
def penalty(weight):
    if weight.sum() > 0:  # breaks the graph
        return weight.square().sum()
    return weight.abs().sum()


for _ in range(3):
    loss = torch.nn.functional.cross_entropy(fast(torch.randn(5, 6)), torch.randint(0, 2, (5,)))
    loss = loss + 0.01 * penalty(net[0].weight)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), net[0].weight.grad.norm().item())
