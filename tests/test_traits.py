"""What is said of ops, measured: each is run, and its name is that of the aten op that runs."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.ops.traits import _ROWS, TRAITS, Trait, has, key
from gradscope.record.schema import plain_name

FILL = 7.25  # a value that no op of these computes
AT = torch.tensor([[0, 2], [1, 0]])
MASK = torch.tensor([[True, False, False], [False, False, True], [False, True, False]])
HIGH = torch.tensor([[FILL, 0.1, 0.1], [0.1, FILL, 0.1], [0.1, 0.1, 0.1]]).double()
B = torch.tensor([[0.3, -1.1, 0.7], [1.9, 0.2, -0.4], [0.9, 1.3, -0.6]]).double()
TARGETS = torch.tensor([0, 2, 1])

Op = Callable[[Tensor], Tensor]


def written(write: Callable[[Tensor], object]) -> Op:
    """Of an op that writes in place: the values afterwards."""

    def run(x: Tensor) -> Tensor:
        values = x * 1
        write(values)
        return values

    return run


def attention(x: Tensor, mask: Tensor | None = None) -> Tensor:
    query = x.to(torch.float32)[None, None]
    return F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


RUN: dict[str, Op] = {
    "where": lambda x: torch.where(MASK, x, FILL),
    "masked_fill": lambda x: x.masked_fill(MASK, FILL),
    "masked_select": lambda x: x.masked_select(MASK),
    "masked_scatter": lambda x: x.masked_scatter(MASK, B),
    "index": lambda x: x[AT[0], AT[1]],
    "index_put": written(lambda y: y.index_put_((AT[0], AT[1]), torch.tensor(FILL).to(y))),
    "index_fill": lambda x: x.index_fill(0, AT[0], FILL),
    "index_select": lambda x: x.index_select(0, AT[0]),
    "gather": lambda x: x.gather(0, AT),
    "take": lambda x: x.take(AT),
    "scatter": lambda x: x.scatter(0, AT, FILL),
    "embedding": lambda x: F.embedding(AT[0], x),
    "slice": lambda x: x[1:],
    "select": lambda x: x[1],
    "split": lambda x: x.split(2)[0],
    "split_with_sizes": lambda x: x.split([1, 2])[0],
    "unsafe_split": lambda x: x.unsafe_split(2)[0],
    "unbind": lambda x: x.unbind()[0],
    "diagonal": lambda x: x.diagonal(),
    "triu": lambda x: x.triu(),
    "tril": lambda x: x.tril(),
    "copy": written(lambda y: y[0].copy_(torch.full((3,), FILL))),
    "fill": written(lambda y: y[0].fill_(FILL)),
    "zero": written(lambda y: y[0].zero_()),
    "select_scatter": lambda x: x.select_scatter(B[0], 0, 1),
    "slice_scatter": lambda x: x.slice_scatter(B[:1], 0, 1, 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(B[0]),
    "_pack_padded_sequence": lambda x: (
        nn.utils.rnn.pack_padded_sequence(x[..., None], torch.tensor([3, 2, 1])).data
    ),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "nll_loss_forward": lambda x: F.nll_loss(x, TARGETS),
    "nll_loss2d_forward": lambda x: F.nll_loss(x[None, ..., None], TARGETS[None, :, None]),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(-1),
    "clamp_max": lambda x: x.clamp_max(1),
    "minimum": lambda x: torch.minimum(x, -HIGH),
    "maximum": lambda x: torch.maximum(x, HIGH),
    "fmin": lambda x: torch.fmin(x, B),
    "fmax": lambda x: torch.fmax(x, B),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(0),
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "topk": lambda x: x.topk(2)[0],
    "sort": lambda x: x.sort()[0],
    "cummax": lambda x: x.cummax(0)[0],
    "cummin": lambda x: x.cummin(0)[0],
    "nan_to_num": lambda x: x.nan_to_num(FILL),
    "nansum": lambda x: x.nansum(),
    "relu": lambda x: x.relu(),
    "threshold": lambda x: F.threshold(x, -0.5, FILL),
    "hardtanh": lambda x: F.hardtanh(x),
    "max_pool2d_with_indices": lambda x: F.max_pool2d(x[None, None], 2),
    "full": lambda x: torch.full((2,), FILL),
    "full_like": lambda x: torch.full_like(x, FILL),
    "new_full": lambda x: x.new_full((2,), FILL),
    "scalar_tensor": lambda x: torch.scalar_tensor(FILL),
    "constant_pad_nd": lambda x: F.pad(x, (1, 1), value=FILL),
    "clone": lambda x: x.clone(),
    "_to_copy": lambda x: x.to(torch.complex128).real,
    "_unsafe_view": lambda x: x.t().reshape(-1).reshape(3, 3).t().clone(),
    "lift_fresh": lambda x: torch.ops.aten.lift_fresh(x),
    "set": lambda x: torch.empty(0, dtype=x.dtype).set_(x.detach()),
    "cat": lambda x: torch.cat([x[:1], x[1:]]),
    "stack": lambda x: torch.stack([x[0], x[1], x[2]]),
    "threshold_backward": lambda x: torch.ops.aten.threshold_backward(x, B, 0),
    "select_backward": lambda x: torch.ops.aten.select_backward(x, [2, 3, 3], 0, 1),
    "slice_backward": lambda x: torch.ops.aten.slice_backward(x, [5, 3], 0, 1, 4, 1),
    "bernoulli": lambda x: torch.bernoulli(x.nan_to_num(0.5).sigmoid()),
    "rand": lambda x: torch.rand(2, dtype=x.dtype),
    "rand_like": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn(2, dtype=x.dtype),
    "randn_like": lambda x: torch.randn_like(x),
    "zeros": lambda x: torch.zeros(2, dtype=x.dtype),
    "zeros_like": lambda x: torch.zeros_like(x),
    "ones": lambda x: torch.ones(2, dtype=x.dtype),
    "ones_like": lambda x: torch.ones_like(x),
    "eye": lambda x: torch.eye(2, dtype=x.dtype),
    "hardswish": lambda x: F.hardswish(x),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "_softmax": lambda x: x.softmax(-1),
    "_log_softmax": lambda x: x.log_softmax(-1),
    "_masked_softmax": lambda x: torch._masked_softmax(x, torch.zeros_like(MASK), -1, 0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "leaky_relu_backward": lambda x: torch.ops.aten.leaky_relu_backward(B, x, 0.1, False),
    "hardtanh_backward": lambda x: torch.ops.aten.hardtanh_backward(B, x, -1, 1),
    "logaddexp": lambda x: torch.logaddexp(x, 2 * x),
    "logaddexp2": lambda x: torch.logaddexp2(x, 2 * x),
    "_scaled_dot_product_attention": lambda x: attention(x, _hidden(x)),
    "erf": lambda x: x.erf(),
    "gelu": lambda x: F.gelu(x),
    "silu": lambda x: F.silu(x),
    "softplus": lambda x: F.softplus(x, threshold=math.inf),
    "elu": lambda x: F.elu(x),
    "mish": lambda x: F.mish(x),
    "log_sigmoid_forward": lambda x: F.logsigmoid(x),
    "sign": lambda x: x.sign(),
    "round": lambda x: x.round(),
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "trunc": lambda x: x.trunc(),
    "exp": lambda x: x.exp(),
    "exp2": lambda x: x.exp2(),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "normal": lambda x: torch.normal(x, 1.0),
    "poisson": lambda x: torch.poisson(x.abs()),
    "cauchy": written(lambda y: y.cauchy_()),
    "exponential": written(lambda y: y.exponential_()),
    "lerp": lambda x: torch.lerp(x, 2 * x, 0.5),
    "rad2deg": lambda x: x.rad2deg(),
    "sinc": lambda x: x.sinc(),
    "sqrt": lambda x: x.sqrt(),
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "pow": lambda x: x**2,
    "cumsum": lambda x: x.cumsum(0),
    "linalg_vector_norm": lambda x: x.norm(),
    "prod": lambda x: x.prod(),
    "cumprod": lambda x: x.cumprod(0),
    "linalg_lstsq": lambda x: torch.linalg.lstsq(x, x.flip(0) + 1)[0],
    "linalg_pinv": torch.linalg.pinv,
    "std": lambda x: x.std(),
    "var": lambda x: x.var(),
    "std_mean": lambda x: torch.std_mean(x)[0],
    "var_mean": lambda x: torch.var_mean(x)[0],
    "native_layer_norm": lambda x: F.layer_norm(x, (3,)),
    "native_group_norm": lambda x: F.group_norm(x, 1),
    "native_batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "add": lambda x: x + 2 * x,
    "sub": lambda x: x - 2 * x,
    "expand": lambda x: x.expand(2, 3, 3),
    "addmv": lambda x: torch.addmv(x[0], x, x[0]),
    "mse_loss": lambda x: F.mse_loss(x, 2 * x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, 2 * x),
    "huber_loss": lambda x: F.huber_loss(x, 2 * x),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "div": lambda x: torch.ones_like(x) / x,
    "reciprocal": lambda x: x.reciprocal(),
    "rsqrt": lambda x: x.rsqrt(),
    "addcdiv": lambda x: torch.addcdiv(x, x, 2 * x),
    "rsub": lambda x: torch.rsub(x, 3 * x),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, x.detach()),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, 2 * x),
}
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda a, b: a * b,
    "mm": lambda a, b: a.mm(b),
    "bmm": lambda a, b: a[None].bmm(b[None]),
    "dot": lambda a, b: a.flatten().dot(b.flatten()),
    "mv": lambda a, b: a.mv(b[0]),
    "addmm": lambda a, b: torch.addmm(torch.zeros_like(a), a, b),
    "baddbmm": lambda a, b: torch.baddbmm(torch.zeros_like(a)[None], a[None], b[None]),
    "convolution": lambda a, b: F.conv1d(a[None], b[None]),
    "matmul": lambda a, b: a @ b,
    "linear": lambda a, b: F.linear(a, b),
}
RUN |= {op: lambda x, run=run: run(x, x) for op, run in PRODUCTS.items()}
NO_CPU_DERIVATIVE = {"heaviside"}
RUN["heaviside"] = lambda x: torch.heaviside(x, x.detach().abs())


def _hidden(x: Tensor) -> Tensor | None:
    """Of scores that are -inf all over a row: the mask that makes them so."""
    rows = torch.isneginf(x).all(-1)
    return torch.zeros(3, 3).masked_fill(rows[:, None], -math.inf) if rows.any() else None


def operand(*values: float) -> Tensor:
    """A 3 x 3 operand: distinct numbers of both signs, unless others are given."""
    data = values or (-2.1, 0.4, 1.7, 0.9, -0.6, 2.3, -1.2, 1.1, -0.3)
    made = torch.tensor(data, dtype=torch.float64)
    return made.expand(9).reshape(3, 3).clone() if len(data) == 1 else made.reshape(-1, 3)


def with_nan(at: int) -> Tensor:
    x = operand()
    x.view(-1)[at] = math.nan
    return x


def of(trait: Trait) -> list[str]:
    return [op for op, traits in TRAITS.items() if trait in traits]


def slope(op: str, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    out = RUN[op](x)
    weights = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).reshape(out.shape)
    (found,) = torch.autograd.grad((out * weights.to(out)).sum(), x)
    return found


def along(op: str, at: float) -> Tensor:
    """The slope where one element of each row is at `at`, and the others are 0."""
    x = torch.zeros(3, 3, dtype=torch.float64)
    x[:, 0] = at
    return slope(op, x)[:, 0]


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found.add(key(plain_name(func._schema.name.split("::")[-1])))
        return func(*args, **(kwargs or {}))


ALL = sorted(TRAITS)


def test_each_op_stands_once():
    assert sum(len(ops.split()) for ops, _ in _ROWS) == len({key(op) for op in TRAITS})


@pytest.mark.parametrize("op", ALL)
def test_each_name_is_that_of_an_aten_op_that_runs(op):
    with Names() as names:
        out = RUN[op](operand().requires_grad_(op != "heaviside"))
        with torch.inference_mode():
            RUN[op](operand())

    assert key(op) in names.found
    if out.grad_fn is not None and out.grad_fn.name() != "torch::autograd::CopySlices":
        assert key(op) in {key(node.name()) for node in _nodes(out)} | {
            key("matmul"),
            key("linear"),
        }


def _nodes(out: Tensor) -> list[torch.autograd.graph.Node]:
    found, waiting = [], [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None:
            found.append(node)
            waiting += [below for below, _ in node.next_functions]
    return found


DIFFERENTIABLE = [
    op
    for op in ALL
    if RUN[op](operand().abs().requires_grad_()).requires_grad
    and not has(op, Trait.STEPS | Trait.DRAWS)
]
ROOTS = ("sqrt", "rsqrt")
OF_NAN = ("nan_to_num", "nansum")  # what they leave out is NaN


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_what_chooses_gives_gradient_0_to_what_it_leaves_out(op):
    torch.manual_seed(0)
    x = with_nan(1) if op in OF_NAN else operand().abs() if op in ROOTS else operand()

    zeros = slope(op, x) == 0

    assert bool(zeros.any() and not zeros.all()) is has(op, Trait.CHOOSES)


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_what_goes_by_value_takes_others_when_the_values_move(op):
    def taken(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return jacobian(RUN[op], x) != 0

    x = operand().abs() if op in ROOTS else operand()
    one, other = (with_nan(1), with_nan(5)) if op in OF_NAN else (x, x.roll(1, 0))

    assert bool((taken(one) != taken(other)).any()) is has(op, Trait.BY_VALUE)


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_what_masks_takes_the_others_when_the_condition_turns(op, monkeypatch):
    def left_out() -> Tensor:
        torch.manual_seed(0)
        return slope(op, operand().abs()) == 0

    one = left_out()
    monkeypatch.setitem(globals(), "MASK", ~MASK)

    assert bool((one != left_out()).any()) is has(op, Trait.MASKS)


@pytest.mark.parametrize("op", ALL)
def test_what_fills_puts_the_given_value_in(op):
    x = with_nan(1) if op in OF_NAN else operand().abs() if op in ROOTS else operand()

    assert bool((RUN[op](x).abs() == FILL).any()) is has(op, Trait.FILLS)


@pytest.mark.parametrize(
    ("op", "write"),
    [
        ("copy", lambda y: y.copy_(B)),
        ("fill", lambda y: y.fill_(FILL)),
        ("zero", lambda y: y.zero_()),
        ("add", lambda y: y.add_(B)),
        ("masked_fill", lambda y: y.masked_fill_(MASK, FILL)),
        ("index_put", lambda y: y.index_put_((AT[0], AT[1]), torch.tensor(FILL).to(y))),
    ],
)
def test_what_replaces_leaves_nothing_of_the_old_values(op, write):
    same = torch.equal(write(operand()), write(-operand()))

    assert same is has(op, Trait.REPLACES)


@pytest.mark.parametrize("op", ALL)
def test_what_copies_or_joins_has_all_elements_of_its_operands(op):
    x = operand().abs() if op in ROOTS else operand()

    assert torch.equal(RUN[op](x), x) is has(op, Trait.COPIES | Trait.JOINS) or op in OF_NAN


@pytest.mark.parametrize("op", of(Trait.FINITE_AS_OPERAND))
def test_what_hands_on_gives_elements_of_its_operand_or_0(op):
    x = operand() * 1e307

    assert set(RUN[op](x).flatten().tolist()) <= {0.0, *x.flatten().tolist()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("op", of(Trait.FINITE))
def test_what_is_finite_is_so_whatever_it_is_given(op, dtype):
    assert RUN[op](torch.full((3, 3), math.nan, dtype=dtype)).isfinite().all()


@pytest.mark.parametrize("op", of(Trait.WRITES))
def test_what_writes_puts_other_values_into_its_operand(op):
    x = operand()
    out = RUN[op](x)

    assert out.shape == x.shape
    assert (out == x).any()
    assert (out != x).any()


@pytest.mark.parametrize("op", of(Trait.CLAMPS))
def test_what_clamps_keeps_what_lies_between_the_bounds(op):
    x = operand()
    out = RUN[op](x)

    assert set(out[out != x].tolist()) <= {-1.0, 1.0}
    assert (out == x).any()


@pytest.mark.parametrize("op", of(Trait.BOUNDS))
def test_what_bounds_lets_the_bound_itself_out(op):
    ends = [(RUN[op](operand(sign * 20.0)), RUN[op](operand(sign * 1e6))) for sign in (1, -1)]

    assert any(bool((near == far).any()) for near, far in ends)


@pytest.mark.parametrize("op", of(Trait.RECTIFIES))
def test_what_rectifies_is_flat_below_a_number(op):
    assert not along(op, -10.0).any()
    assert along(op, 0.5).all()


@pytest.mark.parametrize("op", of(Trait.SATURATES))
def test_what_saturates_is_flat_far_out_alone(op):
    far = [slope(op, operand(*(sign * 1e3 * n for n in (1, 0, -1)))) for sign in (1, -1)]

    assert along(op, 3.0).all()
    assert along(op, -2.0).all()
    assert any(bool((one == 0).any()) for one in far)


@pytest.mark.parametrize("op", of(Trait.FLAT_AT_ZERO))
def test_what_is_flat_at_zero_is_so_nowhere_else(op):
    assert not slope(op, torch.zeros(3)).any()
    assert along(op, 0.5).all()
    assert along(op, -0.5).all()


@pytest.mark.parametrize("op", sorted({*of(Trait.STEPS)} - NO_CPU_DERIVATIVE))
def test_what_steps_is_flat_everywhere(op):
    assert not slope(op, operand()).any()
    assert RUN[op](operand()).unique().numel() > 1


ADDS = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "expand": lambda a, b: a.expand(2, 3, 3),
    "addmm": lambda a, b: torch.addmm(a, b, b),
    "baddbmm": lambda a, b: torch.baddbmm(a[None], b[None], b[None]),
    "addmv": lambda a, b: torch.addmv(a[0], b, b[0]),
}


@pytest.mark.parametrize("op", ADDS)
def test_what_adds_hands_the_gradient_on_whatever_the_other_operand_is(op):
    def slopes(b: Tensor) -> list[Tensor | None]:
        a, b = operand().requires_grad_(), b.requires_grad_()
        return list(torch.autograd.grad(ADDS[op](a, b).sum(), (a, b), allow_unused=True))

    (a, b), (other_a, other_b) = slopes(operand()), slopes(-3 * operand())

    assert torch.equal(a, other_a) and a.any()
    both = b is None or bool(torch.equal(b, other_b) and b.abs().eq(1).all())
    assert both is has(op, Trait.ADDS)


@pytest.mark.parametrize("op", of(Trait.DRAWS))
def test_what_draws_is_random_and_flat(op):
    torch.manual_seed(0)
    one, other = RUN[op](operand()), RUN[op](operand())

    assert not torch.equal(one, other)
    assert not slope(op, operand()).any()


@pytest.mark.parametrize("op", of(Trait.POSITIVE))
def test_what_is_positive_is_so_of_every_operand(op):
    assert (RUN[op](operand(*torch.linspace(-30, 30, 9).tolist())) > 0).all()


@pytest.mark.parametrize("op", of(Trait.KEEPS_ZERO))
def test_what_keeps_zero_has_no_zero_of_its_own(op):
    assert not RUN[op](operand(0.0)).any()
    assert RUN[op](operand().abs()).all()


@pytest.mark.parametrize("op", of(Trait.DIVIDES))
def test_what_divides_gives_0_of_inf(op):
    assert not RUN[op](operand(math.inf)).any()


@pytest.mark.parametrize("op", ["add", "sub", "rsub", "mul", "div"])
def test_what_subtracts_is_0_of_equals_and_what_shifts_keeps_what_it_shifts_by_0(op):
    x, function = operand(), getattr(torch, op)

    assert bool((function(x, x) == 0).all()) is has(op, Trait.SUBTRACTS)
    assert torch.equal(function(x, 0), x) is has(op, Trait.SHIFTS)


@pytest.mark.parametrize("op", of(Trait.CLEANS))
def test_what_cleans_is_finite_of_nan(op):
    assert RUN[op](with_nan(1)).isfinite().all()


@pytest.mark.parametrize("op", of(Trait.MULTIPLIES))
def test_a_factor_of_zero_silences_the_other(op):
    a = operand().requires_grad_()

    (silenced,) = torch.autograd.grad(PRODUCTS[op](a, 0 * B).sum(), a)
    (through,) = torch.autograd.grad(PRODUCTS[op](a, B).sum(), a)

    assert not silenced.any()
    assert through.any()


@pytest.mark.parametrize("op", of(Trait.PRODUCT))
def test_one_zero_makes_a_product_zero(op):
    x = operand()
    x[0] = 0.0

    assert not RUN[op](x).any()


@pytest.mark.parametrize("op", of(Trait.SUMS))
def test_both_infinities_have_no_sum(op):
    x = operand()
    x[0], x[1] = math.inf, -math.inf

    assert RUN[op](x).isnan().any()


@pytest.mark.parametrize("op", sorted(set(ALL) & {*DIFFERENTIABLE} | {*of(Trait.GROWS_SLOWLY)}))
def test_what_grows_slowly_is_bounded_by_a_power(op):
    x = operand().abs() + 1
    base, far = RUN[op](x).abs().max(), RUN[op](1e3 * x).abs().max()

    grows = not bool(far <= 1e10 * base)

    assert not (grows and has(op, Trait.GROWS_SLOWLY))


@pytest.mark.parametrize("op", of(Trait.PIECEWISE_LINEAR))
def test_the_derivative_of_a_constant_slope_is_0(op):
    functions = {"threshold": F.relu, "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh}
    x = operand().requires_grad_()
    out = functions[op.removesuffix("_backward")](x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)

    assert key(slope.grad_fn.name()) == key(op)
    assert not bend.any()


@pytest.mark.parametrize("op", of(Trait.SOFTMAX))
def test_a_row_of_nothing_but_minus_inf_is_nan(op):
    x = operand()
    x[1] = -math.inf
    x.requires_grad_()
    out = RUN[op](x)
    slopes = torch.autograd.grad(out.sum(), x)[0] if out.requires_grad else torch.zeros(1)

    assert out.isnan().any() or slopes.isnan().any()


@pytest.mark.parametrize("op", of(Trait.SOFTMAX))
def test_the_log_of_a_sum_over_nothing_but_minus_inf_is_minus_inf(op):
    x = operand()
    x[1] = -math.inf

    assert bool(torch.isneginf(RUN[op](x)).any()) is has(op, Trait.LOG_SUMS)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("op", of(Trait.AVERAGES))
def test_an_average_of_nothing_is_nan(op):
    if "nll_loss" in op:
        out = F.nll_loss(operand(), torch.full((3,), -100))
    else:
        out = RUN[op](torch.zeros(0, dtype=torch.float64))

    assert out.isnan().all()


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("op", of(Trait.AVERAGES))
def test_what_spreads_is_nan_of_a_single_item(op):
    single = operand()[:1, :1] if "nll_loss" not in op else None
    out = RUN[op](single) if single is not None else F.nll_loss(operand()[:1], TARGETS[:1])

    assert bool(out.isnan().all()) is has(op, Trait.SPREADS)


@pytest.mark.parametrize("op", of(Trait.HANGS_ON_MODES))
def test_what_hangs_on_modes_is_rounded_otherwise_under_one(op):
    def bits(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone().requires_grad_()
        out = RUN[op](x)
        out.abs().sum().backward()
        assert x.grad is not None
        return out.detach(), x.grad

    torch.manual_seed(0)
    differ = []
    for number in range(20):
        x = torch.randn(6, 5, dtype=torch.complex64)
        x[0, 0] *= number % 2
        bare = bits(x)
        with Names():
            differ += [not torch.equal(*pair) for pair in zip(bare, bits(x), strict=True)]

    # Without vector units, the other formula may round alike.
    assert any(differ) or torch.backends.cpu.get_cpu_capability() == "DEFAULT"


@pytest.mark.parametrize("op", of(Trait.SIGN_HANGS_ON_MODES))
def test_whose_zeros_hang_on_modes_have_another_sign_under_one(op):
    def signs() -> Tensor:
        x = operand().requires_grad_()
        RUN[op](x).neg().backward()
        assert x.grad is not None
        return torch.signbit(x.grad)

    bare = signs()
    with Names():
        assert not torch.equal(bare, signs())


@pytest.mark.parametrize("op", of(Trait.FILL_HANGS_ON_MODES))
def test_what_fills_a_tensor_in_adds_its_gradient_up_otherwise_under_a_mode(op):
    def gradient() -> Tensor:
        filled = torch.zeros((), requires_grad=True)
        getattr(torch.zeros(1000), op)(mask, filled).backward(weights)
        assert filled.grad is not None
        return filled.grad

    torch.manual_seed(0)
    differ = []
    for _ in range(20):
        weights, mask = torch.randn(1000), torch.randn(1000) > 0
        bare = gradient()
        with Names():
            differ.append(not torch.equal(bare, gradient()))

    assert any(differ)


@pytest.mark.parametrize("node", ["MaskedFillBackward0", "MaskedFillBackward1", "masked_fill"])
def test_a_node_and_its_op_are_one(node):
    assert has(node, Trait.CHOOSES)
    assert not has(node, Trait.BY_VALUE)
