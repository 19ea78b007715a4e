"""Ops that mix elements: the table explains what the recorder measured of a real run."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional as F

from gradscope.diagnose import find_roots
from gradscope.facts import Ending, Root
from gradscope.ops import Edge, Nature, lookup
from gradscope.record import Observation
from gradscope.rules.reading import evidence

INF, MAX = math.inf, torch.finfo(torch.float32).max
N = Nature


@dataclass(frozen=True)
class Case:
    """`run` of leaves made from `inputs` breaks at `op`, on an edge of that nature."""

    run: object
    inputs: tuple[object, ...]
    op: str
    nature: Nature
    cause: str

    def __str__(self) -> str:
        return f"{self.op}-{self.nature}"


# The cause that most edges of a nature have.
USUAL = {
    N.OVERFLOW: "overflow",
    N.EMPTY: "empty-reduction",
    N.SLOPE_OVERFLOW: "overflow",
    N.DOMAIN: "all-masked-softmax",
    N.POLE: "degenerate-decomposition",
    N.REMOVABLE: "singular-derivative",
    N.DEGENERATE: "degenerate-decomposition",
}


def case(op: str, nature: Nature, run, *inputs, cause: str = "") -> Case:
    return Case(run, inputs, op, nature, cause or USUAL[nature])


ZEROS = [[0.0, 0.0], [0.0, 0.0]]
EYE = [[1.0, 0.0], [0.0, 1.0]]
SAME = [[1.0, 2.0], [1.0, 2.0]]
HUGE = [[MAX, MAX], [1.0, 1.0]]
MASKED = [[-INF, -INF], [1.0, 2.0]]


def hidden(x: torch.Tensor) -> torch.Tensor:
    """The rows of x with nothing but -inf, made inside the program."""
    return x.masked_fill(torch.tensor([[True, True], [False, False]]), -INF)


CASES = [
    case("sum", N.OVERFLOW, lambda x: x.sum(), [MAX, MAX]),
    case("mean", N.OVERFLOW, lambda x: x.mean(), [MAX, MAX]),
    case("mean", N.EMPTY, lambda x: x[:0].mean(), [1.0]),
    case("std", N.EMPTY, lambda x: x.std(), [1.0]),
    case("var", N.EMPTY, lambda x: x.var(0), [[1.0, 2.0]]),
    case("prod", N.OVERFLOW, lambda x: x.prod(), [1e30, 1e30]),
    case("prod", N.SLOPE_OVERFLOW, lambda x: x.prod(), [MAX, 0.1, 3.0]),
    case("linalg_vector_norm", N.OVERFLOW, lambda x: x.norm(), [1e30, 1.0]),
    case(
        "linalg_vector_norm",
        N.SLOPE_OVERFLOW,
        lambda x: x.norm(p=-1.0),
        [1e-30, 1.0, 2.0],
        cause="singular-derivative",
    ),
    case("_softmax", N.DOMAIN, lambda x: hidden(x).softmax(-1), SAME),
    case("_log_softmax", N.DOMAIN, lambda x: hidden(x).log_softmax(-1), SAME),
    case("mm", N.OVERFLOW, lambda x: x @ x, HUGE),
    case("addmm", N.OVERFLOW, lambda x: F.linear(x, x, x[0]), HUGE),
    case("convolution", N.OVERFLOW, lambda x: F.conv1d(x[None], x[None]), HUGE),
    case(
        "native_layer_norm",
        N.POLE,
        lambda x: F.layer_norm(x, (2,), eps=0.0),
        [*EYE[:1], [3.0, 3.0]],
        cause="zero-division",
    ),
    case(
        "native_batch_norm",
        N.DOMAIN,
        lambda x: F.batch_norm(x, torch.zeros(2), torch.tensor([1.0, -1e-3])),
        SAME,
        cause="domain-error",
    ),
    case(
        "nll_loss_forward", N.EMPTY, lambda x: F.cross_entropy(x, torch.tensor([-100, -100])), SAME
    ),
    case("mse_loss", N.OVERFLOW, lambda x: F.mse_loss(x, -x), [1e30]),
    case("mse_loss", N.EMPTY, lambda x: F.mse_loss(x[:0], x[:0]), [1.0]),
    case(
        "binary_cross_entropy",
        N.REMOVABLE,
        lambda p, y: F.binary_cross_entropy(p, y),
        [0.0, 0.5],
        [0.0, 1.0],
    ),
    case("soft_margin_loss", N.OVERFLOW, lambda x: F.soft_margin_loss(x, torch.ones(1)), [-100.0]),
    case(
        "_ctc_loss",
        N.DOMAIN,
        lambda x: F.ctc_loss(
            x.log_softmax(-1), torch.tensor([[1, 2, 1, 1]]), torch.tensor([2]), torch.tensor([4])
        ),
        [[[1.0, 2.0, 3.0]]] * 2,
        cause="log-zero",
    ),
    case("_linalg_svd", N.DEGENERATE, lambda x: torch.linalg.svd(x).U, EYE),
    case("_linalg_eigh", N.DEGENERATE, lambda x: torch.linalg.eigh(x)[1], EYE),
    case("linalg_qr", N.DEGENERATE, lambda x: torch.linalg.qr(x)[0], SAME),
    case("linalg_inv_ex", N.POLE, lambda x: torch.linalg.inv_ex(x)[0], SAME),
    case("_linalg_slogdet", N.POLE, lambda x: torch.logdet(x), SAME),
    case("linalg_cholesky_ex", N.DEGENERATE, lambda x: torch.linalg.cholesky_ex(x)[0], ZEROS),
    case(
        "linalg_matrix_exp",
        N.OVERFLOW,
        lambda x: torch.linalg.matrix_exp(x),
        [[100.0, 0.0], [0.0, 1.0]],
    ),
]


def recorded(one: Case) -> Root:
    leaves = [torch.tensor(values, requires_grad=True) for values in one.inputs]
    recorder = Observation()
    with recorder:
        value = one.run(*leaves)
        torch.autograd.backward(value, torch.rand(value.shape) + 0.5)
    return find_roots(recorder.trace("test", Ending("finished")))[0]


@pytest.mark.filterwarnings("ignore:(std|var).*degrees of freedom")
@pytest.mark.parametrize("one", CASES, ids=str)
def test_the_table_explains_the_root(one):
    torch.manual_seed(0)
    root = recorded(one)
    edge: Edge | None = evidence.edge(root.event)

    assert root.event.op == one.op
    assert (edge.nature, edge.cause) == (one.nature, one.cause)


GUARDED = [
    ("_softmax", "{}.softmax(-1)", "masked"),
    ("_log_softmax", "{}.log_softmax(-1)", "masked"),
    ("logsumexp", "{}.logsumexp(-1)", "masked"),
    ("linalg_inv_ex", "torch.linalg.inv_ex({})[0]", "same"),
    ("_linalg_slogdet", "torch.linalg.slogdet({})[1]", "same"),
    ("linalg_cholesky_ex", "torch.linalg.cholesky_ex({})[0]", "zeros"),
    ("binary_cross_entropy", "torch.nn.functional.binary_cross_entropy({}, y)", "x[:1]"),
]


@pytest.mark.parametrize(("op", "source", "operand"), GUARDED, ids=[row[0] for row in GUARDED])
def test_a_guard_around_all_of_an_operand_mends_it(op, source, operand):
    fact = lookup(op)
    edge = next(edge for edge in fact.edges if edge.cure.guard)
    x = torch.tensor([0.0, 1.0, 0.5], requires_grad=True)
    same, zeros = torch.tensor(SAME, requires_grad=True), torch.zeros(2, 2, requires_grad=True)
    scope = {"torch": torch, "x": x, "same": same, "zeros": zeros, "y": torch.ones(1)}
    scope |= {"masked": hidden(same)}

    guard = edge.cure.guard.format(x=operand, eps=edge.cure.eps("float32"), dim="-1")
    value = eval(source.format(guard), scope)
    value.sum().backward()

    assert value.isfinite().all()
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in (x, same, zeros))
