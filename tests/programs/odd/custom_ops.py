import numpy as np
import torch

torch.manual_seed(0)


@torch.library.custom_op("odd::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.power(x.detach().numpy(), 3))


cube.register_fake(torch.empty_like)
cube.register_autograd(
    lambda ctx, grad: 3 * ctx.saved_tensors[0] ** 2 * grad,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@torch.library.custom_op("odd::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


library = torch.library.Library("odd", "FRAGMENT")
library.define("both(Tensor x) -> (Tensor, Tensor[])")
library.impl("both", lambda x: (x * 2, [x + 1, x + 2]), "CompositeImplicitAutograd")


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power, extra=None):
        ctx.power = power
        ctx.save_for_backward(x)
        whole = (x > 0).int()
        ctx.mark_non_differentiable(whole)
        return x**power, whole

    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return ctx.power * x ** (ctx.power - 1) * grad, None, None


x = torch.randn(4, requires_grad=True)
out = cube(x) + Several.apply(x, 2)[0]
doubled, more = torch.ops.odd.both(x)
plain = torch.ones(4)
scale_(plain, 3.0)
loss = (out * plain + doubled + more[0] * more[1]).sum()
loss.backward()
print(loss.item(), x.grad.tolist())
