"""Custom Functions whose backward is wrong, one way each, and the call that shows it."""

import torch
from torch.autograd import Function

N = 6


class _Tanh(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(x, y)
        return y


class SignFlipped(_Tanh):
    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return grad_output * (y * y - 1)


class Doubled(_Tanh):
    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return 2 * grad_output * (1 - y * y)


class MissingMean(Function):
    """The loss is a mean; its backward is that of a sum."""

    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return (x - target).square().mean()

    @staticmethod
    def backward(ctx, grad_output):
        x, target = ctx.saved_tensors
        return grad_output * 2 * (x - target), None


class DividedTwice(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x / x.numel()


class MeanRepeated(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (2 * x).mean().expand_as(x)


class Ignored(_Tanh):
    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return 1 - y * y


class SpreadIgnored(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = torch.logsumexp(x, dim=-1)
        ctx.save_for_backward(x, total)
        return total

    @staticmethod
    def backward(ctx, grad_output):
        x, total = ctx.saved_tensors
        return torch.exp(x - total.unsqueeze(-1))


class AsNumber(_Tanh):
    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return grad_output.mean() * (1 - y * y)


class AsSum(_Tanh):
    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return grad_output.sum() * (1 - y * y)


class Transposed(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.T, grad_output.T @ x


class UsesWeightUnturned(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w, x.T @ grad_output


class Swapped(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output * a, grad_output * b


class NotSummed(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x[:, None] * w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output * w, grad_output * x[:, None]


class ReturnsNone(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        _, scale = ctx.saved_tensors
        return grad_output * scale, None


class TooFewReturned(Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.power = power
        ctx.save_for_backward(x)
        return x**power

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ctx.power * x ** (ctx.power - 1)


class WrongShape(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x[:, 0]


class ForgetsMask(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.where(x > 0, x, 0.1 * x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class SavedInput(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


class QuotientRule(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x / (1 + x.abs())

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + x.abs())


class MissingChainFactor(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * grad_output * (x * x).cos()


class NanInside(Function):
    """Smooth at 0, where its backward divides 0 by 0."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x * x / x


class AllZero(_Tanh):
    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(grad_output)


class FirstRowOnly(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad_output):
        grad = torch.zeros_like(grad_output)
        grad[0] = grad_output[0] * 3
        return grad


class Unrelated(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * x.exp()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.cos() + x.exp())


class NumpyForward(Function):
    """Autograd cannot follow this forward: differences alone decide."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(__import__("numpy").sinh(x.detach().numpy()))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return -grad_output * x.cosh()


class NumpyLoss(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tensor(float((x.detach().numpy() ** 2).sum()), dtype=x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 6 * x


class NumpyProduct(Function):
    """Two inputs, and differences alone to tell which of them is wrong."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.as_tensor(a.detach().numpy() @ b.detach().numpy())

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output @ b.T, -(a.T @ grad_output)


class Unconjugated(Function):
    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(w)
        return z * w

    @staticmethod
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output * w, None


def field(*shape: int) -> torch.Tensor:
    pairs = torch.randn(*shape, 2, generator=torch.Generator().manual_seed(7))
    return torch.view_as_complex(pairs)


def matrix(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(*shape, generator=generator).requires_grad_()


def points() -> torch.Tensor:
    return torch.tensor([[-1.5, 0.0, 0.5], [0.25, 1.0, 2.0]], requires_grad=True)


CALLS = {
    # the Function, its arguments, relations, op, where its gradient is wrong
    "sign": (SignFlipped, (matrix(2, 3),), ("sign",)),
    "twice": (Doubled, (matrix(2, 3),), ("factor",)),
    "without 1 / N": (MissingMean, (matrix(4, 3), matrix(4, 3).detach() / 2), ("factor",)),
    "1 / N too many": (DividedTwice, (matrix(4, 3),), ("factor",)),
    "a mean repeated": (MeanRepeated, (matrix(4, 3),), ("mean",)),
    "grad_output ignored": (Ignored, (matrix(4, 3),), ("ignored",)),
    "that of a reduction ignored": (SpreadIgnored, (matrix(4, 3),), ("ignored",)),
    "the mean of grad_output": (AsNumber, (matrix(4, 3),), ("number",)),
    "the sum of grad_output": (AsSum, (matrix(4, 3),), ("number",)),
    "transposed": (Transposed, (matrix(4, 3), matrix(3, 3)), ("transposed",)),
    "transposed, of another shape": (
        Transposed,
        (matrix(4, 3), matrix(3, 2)),
        ("shape", "transposed"),
    ),
    "a weight that is not transposed": (
        UsesWeightUnturned,
        (matrix(4, 3), matrix(3, 3)),
        ("saved",),
    ),
    "swapped": (
        Swapped,
        (matrix(4, 3), (matrix(4, 3) ** 2).detach().requires_grad_()),
        ("swapped",),
    ),
    "not summed": (NotSummed, (matrix(4), matrix(5)), ("shape", "unsummed")),
    "None": (ReturnsNone, (matrix(4), matrix(4)), ("none",)),
    "too few": (TooFewReturned, (matrix(4).abs().detach().requires_grad_(), 3), ("count",)),
    "shape": (WrongShape, (matrix(4, 3),), ("shape",)),
    "a forgotten mask": (ForgetsMask, (matrix(4, 3),), ("some",)),
    "the wrong tensor saved": (SavedInput, (matrix(4, 3),), ("saved",)),
    "the quotient rule": (QuotientRule, (matrix(4, 3),), ("extra",)),
    "the chain rule": (MissingChainFactor, (matrix(4, 3),), ("missing",)),
    "NaN": (NanInside, (points(),), ("non-finite",)),
    "zero": (AllZero, (matrix(4, 3),), ("zero",)),
    "the first row only": (FirstRowOnly, (matrix(4, 3),), ("some",)),
    "nothing fits": (Unrelated, (matrix(4, 3),), ("unknown",)),
    "a conjugate forgotten": (
        Unconjugated,
        (field(4, 3).requires_grad_(), 1j * field(4, 3)),
        ("unknown",),
    ),
    "numpy": (NumpyForward, (matrix(4, 3),), ("sign",)),
    "numpy, the second input": (NumpyProduct, (matrix(4, 3), matrix(3, 2)), ("sign",)),
    "numpy, a loss": (NumpyLoss, (matrix(4, 3),), ("factor",)),
}
