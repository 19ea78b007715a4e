import warnings

warnings.simplefilter("error")
import torch  # noqa: E402

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float64)
torch.set_default_device("cpu")
torch.utils.deterministic.fill_uninitialized_memory = True
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
x = torch.randn(8, 4)


def closure():
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    return loss


for _ in range(2):
    print(optimizer.step(closure).item())
with torch.inference_mode():
    print(net(x).sum().item(), net(x).is_inference())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with torch.autograd.detect_anomaly():
        net(x).exp().sum().backward()
print(net[0].weight.grad.norm().item())
torch.set_grad_enabled(False)
print(net(x).requires_grad)
torch.set_grad_enabled(True)
