import io
import pdb
import sys

import torch

torch.manual_seed(0)
x = torch.randn(3, requires_grad=True)


def loss_of(x):
    y = x.exp()
    pdb.Pdb(stdin=io.StringIO("p y.shape\nn\np float(y.sum())\nc\n"), stdout=sys.stdout).set_trace()
    total = y.sum()
    return total


lines = []


def tracer(frame, event, arg):
    if frame.f_code.co_filename == __file__ and event == "line":
        lines.append(frame.f_lineno)
    return tracer


loss = loss_of(x)
sys.settrace(tracer)
loss = loss + loss_of.__code__.co_argcount * x.square().sum()
sys.settrace(None)
loss.backward()
print(loss.item(), x.grad.tolist(), lines)
