# slow: imports torch.distributed
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
torch.manual_seed(0)
with tempfile.NamedTemporaryFile() as store:
    dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
    net = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item(), net.module.weight.grad.tolist())
    mesh = dist.init_device_mesh("cpu", (1,))
    sharded = fully_shard(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)), mesh=mesh)
    optimizer = torch.optim.AdamW(sharded.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = sharded(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item(), type(sharded[0].weight).__name__)
    whole = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)]).requires_grad_()
    out = (whole @ whole.redistribute(mesh, [Replicate()]).T).sum()
    out.backward()
    print(isinstance(out, DTensor), out.full_tensor().item(), whole.grad.full_tensor().sum().item())
    dist.destroy_process_group()
