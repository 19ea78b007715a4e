"""Process-wide settings of torch and Python that a program changes under us."""

import os
import runpy
import sys
import tempfile

import torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=3)
sys.setswitchinterval(1e-4)
events = []


def profiler(frame, event, arg):
    if frame.f_code.co_filename == __file__:
        events.append((event, frame.f_lineno))


net = torch.nn.Linear(3, 1)
with tempfile.TemporaryDirectory() as folder:
    here = os.getcwd()
    os.chdir(folder)
    with open("part.py", "w") as file:
        file.write("import torch\ny = (torch.ones(2, requires_grad=True) * 3).sum()\ny.backward()\nprint(y)\n")
    runpy.run_path("part.py")
    os.chdir(here)
with torch.inference_mode():
    print(net(torch.ones(1, 3)).is_inference())
torch.set_grad_enabled(False)
with torch.enable_grad():
    loss = net(torch.ones(2, 3)).square().mean()
sys.setprofile(profiler)
loss.backward()
sys.setprofile(None)
print(loss, torch.is_grad_enabled(), len(events))
torch.set_grad_enabled(True)
with torch.device("meta"):
    print(torch.nn.Linear(2, 2).weight.device)
torch.set_default_device("cpu")
sys.argv[:] = ["other"]
net(torch.ones(1, 3)).sum().backward()
print(net.weight.grad)
