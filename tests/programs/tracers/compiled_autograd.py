# slow: compiles
import torch
import torch.nn as nn

torch.manual_seed(0)
import torch._dynamo

m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
x = torch.randn(3, 4)
torch._dynamo.config.compiled_autograd = True


@torch.compile(backend="eager")
def train(x):
    loss = m(x).square().mean()
    loss.backward()
    return loss


try:
    for _ in range(2):
        print(train(x).item(), [p.grad.sum().item() for p in m.parameters()])
except Exception as e:
    print(type(e).__name__)
