import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for dtype in (torch.bfloat16, torch.float16):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, enabled=dtype is torch.float16)
    for _ in range(14):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            out = net(torch.randn(6, 8))
            with torch.autocast("cpu", enabled=False):
                loss = torch.nn.functional.cross_entropy(out.float(), torch.arange(6) % 4)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(out.dtype, loss.item(), scaler.get_scale(), net[0].weight.norm().item())
