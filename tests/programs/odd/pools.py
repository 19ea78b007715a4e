"""Training steps in executors: threads of this process, and processes forked from it."""

import concurrent.futures
import multiprocessing
import queue

import torch

torch.manual_seed(0)


def step(seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, generator=generator, requires_grad=True)
    weight.exp().sum().backward()
    return [round(g, 4) for g in weight.grad.tolist()]


if __name__ == "__main__":
    print(step(0))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(list(pool.map(step, range(3))))
    torch.set_num_threads(1)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        print(list(pool.map(step, range(3))))
    jobs = queue.SimpleQueue()
    jobs.put(step(5))
    print(jobs.get())
