"""Comments, names and paths decide nothing: each program here misleads by one of them."""

import ast
from pathlib import Path

import pytest
import torch
from corpus import diagnosed_file, diagnosed_text

from gradscope.facts import Phase
from gradscope.source import Source
from gradscope.source.arguments import DRAWS, canonical, draws

TRAINED = """\
import torch

torch.manual_seed(0)
{made}
optimizer = torch.optim.SGD({trained}, lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    {loss}
    loss.backward()
    optimizer.step()
"""
SAMPLE = "torch.nn.functional.grid_sample(torch.rand(1, 1, 8, 8), grid{mode}, align_corners=False)"
FORWARD = """\
def forward(x):
    with torch.no_grad():
        return body(x)
body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
"""
ROUNDED = """\
class ReluRound(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros_like(grad)
weight = torch.nn.Parameter(torch.rand(4))
head = torch.nn.Linear(4, 1)
"""
SINGULAR = """\
import torch

a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
for _ in range(2):
    {loss}
    loss.backward()
"""


def reasons(text: str, folder: Path) -> set[object]:
    return {found.evidence.get("reason") for found in diagnosed_text(text, folder).findings}


@pytest.mark.parametrize(
    ("mode", "spread", "reason"),
    [
        (", MODE", "0.5", "nearest"),  # by a name, and no word of it on the line
        ("", "0.0 + 5", "unknown"),  # the word in the comment; flat since it is all outside
    ],
)
def test_a_grid_is_flat_by_its_mode(mode, spread, reason, tmp_path):
    text = TRAINED.format(
        made=f'MODE = "near" + "est"\ngrid = torch.nn.Parameter(torch.rand(1, 4, 4, 2) * {spread})',
        trained="[grid]",
        loss=f"loss = {SAMPLE.format(mode=mode)}.mean()  # {'' if mode else 'not nearest'}",
    )

    assert reasons(text, tmp_path) == {reason}


def test_a_function_that_is_called_forward_is_no_autograd_function(tmp_path):
    text = TRAINED.format(
        made=FORWARD,
        trained="[*body.parameters(), *head.parameters()]",
        loss="loss = head(forward(torch.randn(5, 3))).square().mean()",
    )

    assert reasons(text, tmp_path) == {"no_grad"}


def test_the_class_of_a_function_says_not_what_it_does(tmp_path):
    text = TRAINED.format(
        made=ROUNDED,
        trained="[weight, *head.parameters()]",
        loss="loss = head(ReluRound.apply(weight)).square().mean()",
    )

    assert "dead-relu" not in reasons(text, tmp_path)


def test_a_function_is_no_op_of_its_name(tmp_path):
    """`log` here is no logarithm: what overflows before it is not the `logsumexp` of anything."""
    text = """\
import torch

class log(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

x = torch.full((3,), 100.0, requires_grad=True)
log.apply(x.exp().sum()).backward()
"""
    [first, *_] = diagnosed_text(text, tmp_path).findings

    assert first.op == "exp"
    assert "logsumexp" not in " ".join(f"{fix.title} {fix.code}" for fix in first.fixes)


OF_A_LIBRARY = """\
import torch

@torch.library.custom_op("own{library}::{name}", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return {value}

op.register_autograd(lambda ctx, g: g, setup_context=lambda ctx, inputs, output: None)
x = torch.ones(3, requires_grad=True)
{loss}.sum().backward()
"""


@pytest.mark.parametrize(
    ("name", "value", "loss", "blamed"),
    [
        ("new_zeros", "x + 0", "op((x * 1e30) * 1e30)", "mul"),
        ("exp_like", "x + 0", "op((x * 1e30) * 1e30)", "mul"),
        ("zeros", "x * 1e30 * 1e30", "op(x)", "ownzeros.zeros"),
        ("sign", "x * 1e30 * 1e30", "op(x)", "ownsign.sign"),
    ],
)
def test_an_op_of_a_library_is_no_aten_op_of_its_name(name, value, loss, blamed, tmp_path):
    """Aten's of these names read no values, or give none that are not finite."""
    text = OF_A_LIBRARY.format(library=name, name=name, value=value, loss=loss)
    [first, *_] = diagnosed_text(text, tmp_path).findings

    assert (first.rule, first.op) == ("GS204", blamed)


@pytest.mark.parametrize(
    ("loss", "is_logdet"),
    [
        ("loss = torch.logdet(a)", True),
        ("f = torch.logdet; loss = f(a)", True),
        ("loss = torch.where(a[0, 0] > 0, NAN, torch.linalg.slogdet(a).logabsdet)", False),
        ("loss = torch.where(a[0, 0] > 0, NAN, a.sum())  # as logdet(a) does", False),
    ],
)
def test_a_logarithm_of_a_determinant_is_not_read_in_the_line(loss, is_logdet, tmp_path):
    text = SINGULAR.format(loss=loss).replace("NAN", 'float("nan")')

    [first, *_] = diagnosed_text(text, tmp_path).findings

    assert (first.name == "domain-error") is is_logdet


def test_what_draws_is_known_by_its_whole_name():
    """`operand` holds `rand`, `normalize` holds `normal`; torch tags what draws."""
    text = "import torch\ny = operand.sum() + torch.nn.functional.normalize(x) + {call}\n"
    drawn = {
        canonical(op)
        for op in dir(torch.ops.aten)
        for overload in getattr(getattr(torch.ops.aten, op), "overloads", list)()
        if torch.Tag.nondeterministic_seeded in getattr(getattr(torch.ops.aten, op), overload).tags
    }
    # `torch.random` is a module; of the ops, those are listed that a test before this one has used.
    known = {op for op in drawn if callable(getattr(torch, op, getattr(torch.Tensor, op, None)))}

    assert known <= DRAWS
    for call, random in (("1", False), ("torch.rand(3)", True), ("x.bernoulli_()", True)):
        source = Source("program.py", text.format(call=call))
        assert any(draws(source, node) for node in ast.walk(source.tree)) is random


def test_a_folder_that_is_called_as_torchs_optimizers(tmp_path):
    """Below `torch/optim/` a forward pass is one all the same, and an optimizer anywhere steps."""
    folder = tmp_path / "torch" / "optim"
    folder.mkdir(parents=True)
    path = folder / "program.py"
    path.write_text(
        """\
import torch

class Plain(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data -= p.grad / (p.grad - p.grad)

w = torch.nn.Parameter(torch.ones(3))
optimizer = Plain([w])
(w * 2).sum().backward()
optimizer.step()
"""
    )
    [first, *_] = diagnosed_file(path).findings

    assert (first.name, first.phase) == ("zero-division", Phase.OPTIMIZER)


def test_a_guard_is_the_one_that_switches_gradients_off(tmp_path):
    """And not the first whose name or argument speaks of it."""
    text = TRAINED.format(
        made="""\
import contextlib

@contextlib.contextmanager
def timed(name):
    yield

off = torch.no_grad
body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
""",
        trained="[*body.parameters(), *head.parameters()]",
        loss="""\
with off(), timed("no_grad"):
        x = body(torch.randn(5, 3))
    loss = head(x).square().mean()""",
    )
    [first, *_] = diagnosed_text(text, tmp_path).findings

    said = text.splitlines()[first.location.line - 1][first.location.col : first.location.end_col]
    assert said == "off()"
