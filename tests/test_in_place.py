"""In-place ops inside a graph: the line that broke is named, and a patch still writes in place."""

import pytest
import torch
from apart import traced

from gradscope.record import Observation
from gradscope.record.context import RunContext
from gradscope.record.dispatch import Dispatch
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.readouts import EarlyReads

HEAD = """\
import torch

a = torch.tensor([0.0, 4.0], requires_grad=True)
b = torch.tensor([0.0, 4.0], requires_grad=True)
h, part = a * 1.0, a * 1.0
"""
BREAKING = [
    # the line, the op it is
    ("h.div_(b)", "div"),
    ("h.log_()", "log"),
    ("h.sqrt_()", "sqrt"),
    ("h.reciprocal_()", "reciprocal"),
    ("h.pow_(b - 0.5)", "pow"),
    ("h.mul_(1 / b)", "reciprocal"),
    ("h.add_(1).acos_()", "acos"),
    ("h.xlogy_(b)", "xlogy"),
    ("torch.log_(h)", "log"),
    ("h /= b", "div"),
    ("h[:1].div_(b[:1])", "div"),
    ("h[:].log_()", "log"),
    ("part[:1] = h[:1].log_()", "log"),
    ("torch._foreach_div_([part, h], [b + 1, b])", "div"),
    ("torch._foreach_log_([h, part])", "log"),
]


@pytest.mark.parametrize(("line", "op"), BREAKING, ids=[line for line, _ in BREAKING])
def test_the_line_of_the_op_is_named(line, op, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"{HEAD}{line}\n(h + part).sum().backward()\n")

    found = traced(program).findings[0]

    assert (found.location.line, found.op) == (6, op)


MASKED = """\
import torch

a = torch.tensor([0.0, 4.0], requires_grad=True)
h = a * 1.0
{line}
torch.where(a > 0, h, 0.0).sum().backward()
"""
PATCHED = [
    ("h.log_()", "h.copy_(torch.where(a > 0, h, 1.0)).log_()"),
    ("h[:].sqrt_()", "h[:].copy_(torch.where(a > 0, h[:], 1.0)).sqrt_()"),
]


@pytest.mark.parametrize(("line", "patched"), PATCHED, ids=[line for line, _ in PATCHED])
def test_a_patch_still_writes_into_the_operand(line, patched, gradscope, tmp_path):
    (tmp_path / "program.py").write_text(MASKED.format(line=line))

    done = gradscope("fix", "program.py")

    assert f"-{line}\n+{patched}\n" in done.stdout


def test_an_operand_that_changes_when_it_is_read_twice_is_not_patched(gradscope, tmp_path):
    (tmp_path / "program.py").write_text(MASKED.format(line="h.sub_(0).log_()"))

    done = gradscope("fix", "program.py")

    assert "sub_(0).copy_" not in done.stdout


def test_a_node_of_an_inspected_pass_leads_to_its_in_place_op():
    x, divisor = torch.ones(3, requires_grad=True), torch.ones(3)
    context = RunContext()
    dispatch = Dispatch(context)
    with dispatch:
        dispatch.follow(Flow(context, EarlyReads()))
        h = x * 1
        h.div_(divisor)
        divided = h.grad_fn
        h.log_()

    assert divided is not None and h.grad_fn is not None
    assert context.journal.calls[divided._sequence_nr()].info.name == "div"
    assert context.journal.calls[h.grad_fn._sequence_nr()].info.name == "log"


UNARY = """
abs acos asin atan ceil cos cosh digamma erf erfinv exp exp2 expm1 floor frac lgamma log log10
log1p log2 logit neg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt tan tanh tril trunc
""".split()
BINARY = "add atan2 copysign div fmod hypot mul pow remainder sub xlogy".split()


@pytest.mark.parametrize("view", [False, True], ids=["whole", "view"])
@pytest.mark.parametrize("op", [*UNARY, *BINARY])
def test_every_node_leads_to_its_op_and_no_gradient_changes(op, view):
    start = torch.linspace(0.3, 0.7, 4).view(2, 2)
    other = torch.full((2, 2), 0.6, requires_grad=True)

    def run() -> tuple[torch.Tensor, torch.Tensor | None, object]:
        x = start.clone().requires_grad_()
        other.grad = None
        h = x * 1
        target = h[:] if view else h
        getattr(target, f"{op}_")(*[other] * (op in BINARY))
        node = h.grad_fn
        h.sum().backward()
        assert x.grad is not None
        return x.grad, other.grad, node

    bare = run()
    with Observation(keep_going=False) as recorder:
        seen = run()
        note = recorder.context.call_of_node(seen[2])

    assert note.info.name == op
    assert torch.equal(seen[0], bare[0])
    assert (seen[1] is None) == (bare[1] is None)
    assert seen[1] is None or torch.equal(seen[1], bare[1])


def test_a_copy_that_has_no_room_is_done_without(monkeypatch):
    refused = []

    def full(tensor: torch.Tensor, **options: object) -> torch.Tensor:
        if tensor is not x:
            return clone(tensor, **options)
        refused.append(tensor)
        raise torch.OutOfMemoryError("no room for two")

    clone = torch.Tensor.clone
    x = torch.tensor([-1.0, 4.0])
    weight = torch.ones(2, requires_grad=True)
    monkeypatch.setattr(torch.Tensor, "clone", full)

    with Observation() as recorder:
        (weight * x.sqrt_()).sum().backward()

    assert len(refused) == 1
    assert [symptom.kind for symptom in recorder.ops.symptoms.confirmed] == ["nan-loss", "nan-grad"]
    assert recorder.context.faults == 0
