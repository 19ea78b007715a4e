import torch
import torchmetrics

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
metrics = torchmetrics.MetricCollection(
    {"accuracy": torchmetrics.Accuracy("multiclass", num_classes=4), "f1": torchmetrics.F1Score("multiclass", num_classes=4)}
)
average = torchmetrics.MeanMetric()
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(0, 4, (8,))
    out = net(x)
    gaps = (out[:, None] - out[None]).square().sum(-1)
    apart = torch.nn.functional.pdist(out).mean()  # bug: torch.nn.functional.pdist(out) => gaps.sqrt()
    loss = torch.nn.functional.cross_entropy(out, y) + 0.01 * apart
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(loss.detach())
    print(loss.item(), {k: v.item() for k, v in metrics(out.softmax(-1), y).items()})
print(average.compute().item(), metrics.compute()["f1"].item())
