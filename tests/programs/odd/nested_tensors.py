import warnings

import torch

warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
torch.manual_seed(0)
parts = [torch.randn(2, 4), torch.randn(5, 4)]
linear = torch.nn.Linear(4, 4)
for layout in (torch.strided, torch.jagged):
    batch = torch.nested.nested_tensor(parts, layout=layout, requires_grad=True)
    out = torch.nn.functional.relu(linear(batch))
    padded = torch.nested.to_padded_tensor(out, 0.0)
    loss = padded.square().sum()
    linear.zero_grad()
    loss.backward()
    print(layout, padded.shape, loss.item(), linear.weight.grad.norm().item())
    print([part.sum().item() for part in batch.grad.unbind()])
