import torch

torch.manual_seed(0)
critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(critic.parameters())
for _ in range(3):
    x = torch.randn(6, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    loss = critic(x).mean() + (slope.norm(dim=1) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), critic[0].weight.grad.norm().item())

x = torch.randn(3, dtype=torch.float64, requires_grad=True)
y = (x**4).sum()
for _ in range(4):
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    print(g.tolist())
    y = g
print(torch.autograd.functional.hessian(lambda x: (x**3).sum(), x).tolist())
print(torch.autograd.functional.vhp(lambda x: x.exp().sum(), x, torch.ones_like(x))[1].tolist())
print(torch.autograd.gradcheck(torch.sin, (x,)), torch.autograd.gradgradcheck(torch.tanh, (x,)))
z = x.exp().sum()
z.backward(retain_graph=True)
z.backward(inputs=[x])
print(x.grad.tolist())
print(torch.autograd.grad(x.exp(), x, torch.eye(3, dtype=torch.float64), is_grads_batched=True)[0].tolist())
