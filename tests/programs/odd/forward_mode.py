import torch
import torch.autograd.forward_ad as fwAD

torch.manual_seed(0)
x, tangent = torch.randn(4), torch.randn(4)
weight = torch.randn(4, 4, requires_grad=True)
with fwAD.dual_level():
    dual = fwAD.make_dual(x, tangent)
    primal, pushed = fwAD.unpack_dual((weight @ dual).tanh().cumsum(0))
    print(primal.tolist(), pushed.tolist())
    pushed.sum().backward()  # reverse over forward
print(weight.grad.tolist())


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * ctx.saved_tensors[0] ** 2 * tangent


with fwAD.dual_level():
    print(fwAD.unpack_dual(Cube.apply(fwAD.make_dual(x, tangent))).tangent.tolist())
y = x.clone().requires_grad_()
Cube.apply(y).sum().backward()
print(y.grad.tolist(), torch.autograd.functional.jvp(torch.sin, x, tangent)[1].tolist())
