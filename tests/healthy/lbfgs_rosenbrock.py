import torch

point = torch.tensor([-1.2, 1.0], requires_grad=True)
optimizer = torch.optim.LBFGS([point], max_iter=20, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    x, y = point
    loss = (1 - x) ** 2 + 100 * (y - x**2) ** 2
    loss.backward()
    return loss


for _ in range(3):
    print(optimizer.step(closure).item())
