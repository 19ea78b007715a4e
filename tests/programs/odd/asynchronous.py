import asyncio

import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


async def batches(count):
    for _ in range(count):
        await asyncio.sleep(0)
        yield torch.randn(4, 3)


async def other():
    for _ in range(10):
        await asyncio.sleep(0)
        torch.ones(2).log()


async def train():
    async for batch in batches(4):
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item(), await asyncio.to_thread(lambda: (net.weight * 2).sum().item()))


async def main():
    await asyncio.gather(train(), other())


asyncio.run(main())
