import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

torch.manual_seed(0)
blocks = [
    torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.2), torch.nn.GELU()) for _ in range(4)
]
model = torch.nn.Sequential(*blocks)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def policy(context, op, *args, **kwargs):
    keep = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def selective(x):
    for block in blocks:
        x = checkpoint(
            block,
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
    return x


def nested(x):
    inner = lambda x: checkpoint(blocks[1], blocks[0](x), use_reentrant=False)  # noqa: E731
    return blocks[3](checkpoint(inner, x, use_reentrant=False))


ways = {
    "plain": model,
    "reentrant": lambda x: checkpoint_sequential(model, 2, x, use_reentrant=True),
    "other": lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False),
    "selective": selective,
    "nested": nested,
}
for name, way in ways.items():
    for _ in range(2):
        torch.manual_seed(1)
        optimizer.zero_grad()
        loss = way(torch.randn(5, 4, requires_grad=True)).square().mean()
        loss.backward()
        optimizer.step()
        print(name, loss.item(), blocks[0][0].weight.grad.norm().item())
