# slow: starts interpreters
import multiprocessing
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, place):
        return torch.full((3,), float(place)).log1p(), torch.utils.data.get_worker_info().id


def square(x):
    return x * x


if __name__ == "__main__":
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    for way in ("fork", "spawn"):
        loader = DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context=way, shuffle=True)
        for x, worker in loader:
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            print(way, loss.item(), worker.tolist(), net.weight.grad.tolist())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [2, 3]), multiprocessing.current_process().name, sys.argv[1:])
