import torch
import torch.nn as nn

torch.manual_seed(0)
lstm = nn.LSTM(4, 6, batch_first=True)
head = nn.Linear(6, 9)


def sequence_loss(x, tokens):
    h, _ = lstm(x)
    probs = torch.softmax(head(h) * 8, dim=-1)  # -
    likelihood = torch.ones(x.size(0))  # -
    # + probs = torch.log_softmax(head(h) * 8, dim=-1)
    # + likelihood = torch.zeros(x.size(0))
    for t in range(x.size(1)):
        step = probs[torch.arange(x.size(0)), t, tokens[:, t]]
        likelihood = likelihood * step  # -
    return -torch.log(likelihood).mean()  # -
        # + likelihood = likelihood + step
    # + return -likelihood.mean()


x = torch.randn(3, 70, 4)
tokens = torch.randint(0, 9, (3, 70))
loss = sequence_loss(x, tokens)
loss.backward()
