# slow: needs IPython
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in (
    "import torch; torch.manual_seed(0); net = torch.nn.Linear(3, 1)",
    "x = torch.randn(4, 3)\nloss = net(x).square().mean()\nloss.backward()\nprint(loss.item())",
    "net.weight.grad.tolist()",
    "%timeit -n1 -r1 -q net(x)\nnet(x).sum().backward(); print(net.weight.grad.norm().item())",
):
    result = shell.run_cell(cell, silent=True)
    print(result.success)
