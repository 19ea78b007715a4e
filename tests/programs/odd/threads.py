import threading

import torch

torch.manual_seed(0)
results = {}


def train(name, seed):
    generator = torch.Generator().manual_seed(seed)
    net = torch.nn.Linear(4, 1)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        loss = (net(torch.randn(8, 4, generator=generator)).square()).mean()
        loss.backward()
        optimizer.step()
    results[name] = (loss.item(), net.weight.grad.tolist())


workers = [threading.Thread(target=train, args=(n, n)) for n in range(3)]
for worker in workers:
    worker.start()
train("main", 7)
for worker in workers:
    worker.join()
print(sorted(results.items(), key=str))

shared = torch.randn(4, requires_grad=True)
losses = [(shared * n).exp().sum() for n in range(3)]
lock = threading.Lock()


def back(loss):
    with lock:  # a graph of this thread, differentiated in others
        loss.backward()


workers = [threading.Thread(target=back, args=(loss,)) for loss in losses]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(f"{shared.grad.norm().item():.5f}")
