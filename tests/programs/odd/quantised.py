import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
fixed = torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 10, torch.quint8)
print(fixed.int_repr().tolist(), fixed.dequantize().sum().item())

weight = torch.randn(4, 4, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(3):
    quantised = torch.fake_quantize_per_tensor_affine(weight, 0.05, 0, -128, 127)
    loss = (torch.randn(2, 4) @ quantised).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), weight.grad.tolist())

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
small = torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)
print(small(torch.ones(1, 4)).tolist())
