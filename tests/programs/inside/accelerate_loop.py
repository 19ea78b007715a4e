# A loop of one's own under accelerate: the block is watched.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gradscope
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
body, head = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)
model = nn.ModuleDict({"body": body, "head": head})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))


def loss_of(x, y):
    hidden = model["body"](x)  # bug: model["body"](x) => model["body"](x).detach()
    weight = (y.abs() + 1).rsqrt()  # bug: (y.abs() + 1) => (y.abs() * 0)
    return ((model["head"](hidden) - y).square() * weight).mean()


with gradscope.watch(stop=True) as seen:
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(x, y))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
print(seen)
print("went on")
