import torch

torch.manual_seed(0)
cuts = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
eta = torch.tensor([0.3, -60.0, 40.0])
level = torch.tensor([0, 1, 0])


def nll(cuts, eta, level):
    upper = torch.sigmoid(cuts[level + 1] - eta)  # -
    lower = torch.sigmoid(cuts[level] - eta)  # -
    return -torch.log(upper - lower).mean()  # -
    # + upper = cuts[level + 1] - eta
    # + lower = cuts[level] - eta
    # + inside = torch.nn.functional.logsigmoid(upper) + torch.nn.functional.logsigmoid(-lower)
    # + return -(inside + torch.log(-torch.expm1(lower - upper))).mean()


loss = nll(cuts, eta, level)
loss.backward()
