"""nan is born where two gradient branches are summed, and no node of the graph returns it.

Each branch brings an inf of the other sign to `a`, and inf - inf is nan (pytorch/pytorch#160016).
Anomaly mode blames `x * 1.0`; the slope of `sqrt` at 0 is to blame.
"""
# expects: singular-derivative

import torch

x = torch.zeros(3, requires_grad=True)

a = x * 1.0
loss = (a.sqrt() - 2 * a.sqrt()).sum()
loss.backward()

print("loss", loss.item())
print("grad", x.grad)
