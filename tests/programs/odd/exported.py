# slow: exports
import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(x).sin()


net = Net()
x = torch.ones(3, 4)
program = torch.export.export(net, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch", min=2)}})
module = program.module()
loss = module(torch.randn(5, 4)).square().mean()
loss.backward()
print(loss.item(), {name: p.grad.norm().item() for name, p in module.named_parameters()})
print(len(program.graph.nodes), torch.fx.symbolic_trace(net.linear)(x).sum().item())
print(program.run_decompositions().graph_module(*program.state_dict.values(), x)[0].shape)
