# slow: starts interpreters
import torch
import torch.multiprocessing as mp


def train(rank, results):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    net = torch.nn.Linear(3, 1)
    net(torch.ones(2, 3)).square().mean().backward()
    results.put((rank, net.weight.grad.tolist()))


if __name__ == "__main__":
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(train, args=(results,), nprocs=2)
    print(sorted(results.get() for _ in range(2)))
    torch.manual_seed(3)
    x = torch.randn(3, requires_grad=True)
    x.tanh().sum().backward()
    print(x.grad.tolist())
