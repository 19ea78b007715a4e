import os
import subprocess
import sys

import torch

torch.manual_seed(0)
x = torch.randn(3, requires_grad=True)
for _ in range(2):
    x.exp().sum().backward()
    said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    print(said.stdout.strip(), x.grad.tolist(), flush=True)
subprocess.run(["echo", "from echo"], check=True)
print(os.popen("echo from popen").read().strip(), flush=True)
pid = os.fork()
if pid == 0:
    (torch.zeros(2, requires_grad=True) / 0).sum().backward()  # the fork's own, and nobody's affair
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
