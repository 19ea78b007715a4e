"""Custom Functions whose backward is right, and some that differ from their forward on purpose."""

import torch
import torch.nn.functional as F
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def made(forward, backward):
    """The Function of a formula and of its gradients, which are given those of the outputs and then
    the inputs."""

    class Made(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*grads, *ctx.saved_tensors)

    return Made


ReLU = made(lambda x: x.clamp(min=0), lambda grad, x: grad * (x > 0))


# A kink at 0, where sign() gives the slope between left and right.
Magnitude = made(lambda x: x.abs().sum(), lambda grad, x: grad * x.sign())


class LargestOfRow(Function):
    """Ties: the gradient goes to the first of the largest."""

    @staticmethod
    def forward(ctx, x):
        values, places = x.max(1)
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        ctx.mark_non_differentiable(places)
        return values, places

    @staticmethod
    def backward(ctx, grad_values, grad_places):
        (places,) = ctx.saved_tensors
        grad = torch.zeros(ctx.shape, dtype=grad_values.dtype)
        return grad.scatter_(1, places[:, None], grad_values[:, None])


SinCos = made(
    lambda x: (x.sin(), x.cos()),
    lambda grad_sin, grad_cos, x: grad_sin * x.cos() - grad_cos * x.sin(),
)


class DoubleInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 2 * grad_output


class Linear(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.T + b

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ w
        if ctx.needs_input_grad[1]:
            grad_w = grad_output.T @ x
        if ctx.needs_input_grad[2]:
            grad_b = grad_output.sum(0)
        return grad_x, grad_w, grad_b


# Autograd sums a gradient of the broadcast shape by itself.
AddBroadcast = made(lambda x, b: x + b, lambda grad, x, b: (grad, grad))


class Power(Function):
    @staticmethod
    def forward(x, exponent):
        return x**exponent

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.exponent = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ctx.exponent * x ** (ctx.exponent - 1), None


class Dropout(Function):
    """Random, and the same mask both ways."""

    @staticmethod
    def forward(ctx, x, p):
        ctx.keep = (torch.rand_like(x) > p) / (1 - p)
        return x * ctx.keep

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.keep, None


class Embedding(Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return table[ids]

    @staticmethod
    def backward(ctx, grad_output):
        (ids,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.rows, grad_output.shape[-1])
        return grad.index_add_(0, ids.flatten(), grad_output.flatten(0, -2)), None


class CrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, target):
        probs = logits.softmax(-1)
        ctx.save_for_backward(probs, target)
        return -probs[torch.arange(len(target)), target].log().mean()

    @staticmethod
    def backward(ctx, grad_output):
        probs, target = ctx.saved_tensors
        grad = (probs - F.one_hot(target, probs.shape[-1])) / len(target)
        return grad_output * grad, None


class NumpyExp(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(__import__("numpy").exp(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


NumpyDot = made(
    lambda a, b: torch.as_tensor(a.detach().numpy() @ b.detach().numpy()),
    lambda grad, a, b: (grad @ b.T, a.T @ grad),
)


class InSingle(Function):
    """Computes in float32 whatever it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float().sigmoid().to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        y = x.float().sigmoid()
        return (grad_output * y * (1 - y)).to(x.dtype)


class OnlySingle(Function):
    """Takes no float64 at all."""

    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.float32
        ctx.save_for_backward(x)
        return x.square() @ torch.ones(x.shape[-1])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output[:, None]


class Mish(Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * F.softplus(x).tanh()

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        t = F.softplus(x).tanh()
        return grad_output * (t + x * (1 - t * t) * x.sigmoid())


class LayerNorm(Function):
    @staticmethod
    def forward(ctx, x, eps):
        centred = x - x.mean(-1, keepdim=True)
        rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
        y = centred * rstd
        ctx.save_for_backward(y, rstd)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        y, rstd = ctx.saved_tensors
        mean = grad_output.mean(-1, keepdim=True)
        along = (grad_output * y).mean(-1, keepdim=True)
        return rstd * (grad_output - mean - y * along), None


class Sorted(Function):
    @staticmethod
    def forward(ctx, x):
        values, order = x.sort()
        ctx.order = order
        return values

    @staticmethod
    def backward(ctx, grad_output):
        return torch.empty_like(grad_output).scatter_(-1, ctx.order, grad_output)


class RootOfSquare(Function):
    """At 0 the slope is infinite, and so is the gradient."""

    @staticmethod
    def forward(ctx, x):
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output / (2 * y)


class Optional(Function):
    """Leaves gradients of unused outputs as None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        parts = [2 * first] if first is not None else []
        parts += [3 * second] if second is not None else []
        return sum(parts)


class Constant(Function):
    """The second input does not matter, so None is right for it."""

    @staticmethod
    def forward(ctx, x, unused):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output, None


class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return ReLU.apply(x) + x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ((x > 0) + 1)


Hinge = made(
    lambda score, target: (1 - score * target).clamp(min=0).mean(),
    lambda grad, score, target: (
        grad * -target * ((score * target) < 1) / score.numel(),
        None,
    ),
)


class Stateful(Function):
    """Counts its calls, which must stay the program's own."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        Stateful.calls += 1
        return x * Stateful.calls

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * Stateful.calls


RoundSTE = made(lambda x: x.round(), lambda grad, x: grad)


# A spiking neuron: a step forward, a smooth surrogate back.
Spike = made(lambda x: (x > 0).to(x.dtype), lambda grad, x: grad / (1 + 10 * x.abs()) ** 2)


class FakeQuantise(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return (x / scale).round().clamp(-8, 7) * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        q = x / scale
        inside = (q >= -8) & (q <= 7)
        grad_scale = (
            grad_output * torch.where(inside, q.round() - q, q.clamp(-8, 7).round())
        ).sum()
        return grad_output * inside, grad_scale


class QuantiseBySize(Function):
    """The largest element of all gives the scale: its slope is left out."""

    @staticmethod
    def forward(ctx, x):
        scale = x.abs().max() / 7
        return (x / scale).round() * scale

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


Binarise = made(lambda x: x.sign() * x.abs().mean(), lambda grad, x: grad * (x.abs() <= 1))


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.strength * grad_output, None


ClipGradient = made(lambda x: x.clone(), lambda grad, x: grad.clamp(-0.1, 0.1))


TruncatedExp = made(lambda x: x.exp(), lambda grad, x: grad * x.clamp(max=1.0).exp())


class SaidSo(Function):
    gradscope_ok = "lets the gradient through beyond the bounds"

    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def matrix(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randn(*shape, generator=generator).requires_grad_()


def ties() -> torch.Tensor:
    return torch.tensor([[0.0, 2.0, 2.0], [-1.0, 0.0, 0.0], [1.0, 1.0, 0.5]], requires_grad=True)


def positive(*shape: int) -> torch.Tensor:
    return (matrix(*shape).detach().abs() + 0.1).requires_grad_()


RIGHT = {
    "relu": (ReLU, (matrix(4, 3),)),
    "relu at 0": (ReLU, (ties(),)),
    "abs, a loss, at 0": (Magnitude, (ties(),)),
    "max with ties, an integer output": (LargestOfRow, (ties(),)),
    "two outputs": (SinCos, (matrix(4, 3),)),
    "linear, needs_input_grad": (Linear, (matrix(5, 3), matrix(2, 3), matrix(2))),
    "linear, one input": (Linear, (matrix(5, 3).detach(), matrix(2, 3), matrix(2).detach())),
    "broadcast": (AddBroadcast, (matrix(5, 3), matrix(3))),
    "setup_context, a number": (Power, (positive(4, 3), 2.5)),
    "random": (Dropout, (matrix(8, 8), 0.4)),
    "integer input": (Embedding, (matrix(6, 3), torch.tensor([[0, 2], [2, 5]]))),
    "cross entropy": (CrossEntropy, (matrix(5, 4), torch.tensor([0, 3, 1, 1, 2]))),
    "numpy": (NumpyExp, (matrix(4, 3),)),
    "numpy, two inputs": (NumpyDot, (matrix(4, 3), matrix(3, 2))),
    "float32 inside": (InSingle, (matrix(4, 3),)),
    "float32 only": (OnlySingle, (matrix(4, 3),)),
    "custom_fwd": (Mish, (matrix(4, 3),)),
    "layer norm": (LayerNorm, (matrix(4, 6), 1e-5)),
    "sort": (Sorted, (matrix(4, 6),)),
    "sqrt": (RootOfSquare, (positive(4, 3),)),
    "sqrt at 0": (RootOfSquare, (torch.tensor([0.0, 1.0, 4.0], requires_grad=True),)),
    "set_materialize_grads": (Optional, (matrix(4),)),
    "None where nothing flows": (Constant, (matrix(4), matrix(4))),
    "nested": (Nested, (matrix(4, 3),)),
    "hinge with ties": (
        Hinge,
        (
            torch.tensor([1.0, 0.5, -1.0, 3.0], requires_grad=True),
            torch.tensor([1.0, 1.0, -1.0, 1.0]),
        ),
    ),
    "tiny values": (Power, ((positive(4) * 1e-6).detach().requires_grad_(), 0.5)),
    "large values": (Power, ((positive(4) * 1e6).detach().requires_grad_(), 2)),
    "a scalar": (Power, (torch.tensor(3.0, requires_grad=True), 3)),
    "bfloat16": (Power, (positive(4, 3).detach().bfloat16().requires_grad_(), 2)),
}


ComplexProduct = made(lambda z, w: z * w, lambda grad, z, w: (grad * w.conj(), grad * z.conj()))


Intensity = made(lambda z: z.abs().square(), lambda grad, z: 2 * grad * z)  # complex to real


Phasor = made(  # real to complex
    lambda phase: torch.polar(torch.ones_like(phase), phase),
    lambda grad, phase: grad.imag * phase.cos() - grad.real * phase.sin(),
)


def field(*shape):
    return torch.view_as_complex(torch.randn(*shape, 2)).requires_grad_()


RIGHT |= {
    "complex": (ComplexProduct, (field(4, 3), field(4, 3))),
    "complex to real": (Intensity, (field(4, 3),)),
    "real to complex": (Phasor, (matrix(4, 3),)),
    "complex, lazily conjugated": (Intensity, (field(4).detach().conj().requires_grad_(),)),
}

INTENDED = {
    "round": (RoundSTE, (matrix(4, 3),)),
    "spike": (Spike, (matrix(4, 3),)),
    "learned step size": (FakeQuantise, (matrix(4, 3), torch.tensor(0.2, requires_grad=True))),
    "scale of the largest": (QuantiseBySize, (matrix(6, 5),)),
    "scale of the mean": (Binarise, (matrix(6, 5),)),
    "reversal": (Reverse, (matrix(4, 3), 0.3)),
    "reversal of strength 0": (Reverse, (matrix(4, 3), 0.0)),
    "clipped": (ClipGradient, (matrix(4, 3),)),
    "bounded": (TruncatedExp, ((3 * matrix(4, 3)).detach().requires_grad_(),)),
    "said so": (SaidSo, ((3 * matrix(4, 3)).detach().requires_grad_(),)),
}
