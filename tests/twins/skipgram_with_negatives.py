import torch
# + import torch.nn.functional as F

torch.manual_seed(0)


def loss_fn(pos_score, neg_score):
    pos = torch.log(torch.sigmoid(pos_score))  # -
    neg = torch.log(1 - torch.sigmoid(neg_score)).sum(1)  # -
    # + pos = F.logsigmoid(pos_score)
    # + neg = F.logsigmoid(-neg_score).sum(1)
    return -(pos + neg).mean()


e = torch.randn(4, 6, requires_grad=True)
c = 20 * torch.randn(4, 6)
n = 20 * torch.randn(4, 3, 6)
loss = loss_fn((e * c).sum(-1), (n @ e[:, :, None]).squeeze(-1))
loss.backward()
