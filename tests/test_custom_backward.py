"""GS301: every way to be wrong has its name, and the program is not touched."""

import inspect
import random
import time
from typing import Any

import numpy
import pytest
import right_functions
import torch
import wrong_functions
from corpus import diagnosed_text
from right_functions import INTENDED, RIGHT
from wrong_functions import CALLS

from gradscope import pipeline
from gradscope.config import Config
from gradscope.diagnose import diagnose
from gradscope.facts import Ending, FunctionCheck, Severity, Trace
from gradscope.programs import parse_target
from gradscope.record import Observation
from gradscope.record.probes import function_checks
from gradscope.record.probes.calls import MOST_CALLS


def checks(cls: Any, args: tuple[Any, ...], **options: Any) -> tuple[FunctionCheck, ...]:
    """What the recorder finds of one call, made as a model makes it: on the result of an op."""
    mine = tuple(a.clone() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args)
    with Observation(**{"keep_going": False, **options}) as recorder:
        cls.apply(*mine)
    return recorder.trace("case", Ending("finished")).functions


@pytest.mark.parametrize("name", CALLS)
def test_every_way_to_be_wrong_has_its_name(name):
    cls, args, relations = CALLS[name]
    found = checks(cls, args)
    wrong = [check for check in found if check.verdict == "wrong"]
    assert [check.relation.kinds for check in wrong][:1] == [relations]
    first, lines = inspect.getsourcelines(cls)[1], len(inspect.getsourcelines(cls)[0])
    for check in wrong:
        assert first < check.location.line < first + lines
        assert check.location.function.endswith(f"{cls.__name__}.backward")
    finding, *_ = diagnose(Trace("case", functions=found))
    assert (finding.rule, finding.severity) == ("GS301", Severity.ERROR)
    assert cls.__name__ in finding.message
    assert finding.label and finding.why and finding.fixes
    assert finding.node == f"{cls.__name__}Backward"


class WriteColumn(torch.autograd.Function):
    """What was in the column gets a gradient too, which is wrong where anything depends on it."""

    @staticmethod
    def forward(ctx, table, values, place):
        ctx.place = place
        table.data[:, place] = values
        return table

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output[:, ctx.place], None


@pytest.mark.parametrize(("depends", "verdicts"), [(False, {"right"}), (True, {"right", "wrong"})])
def test_a_gradient_of_what_forward_writes_over_matters_where_it_reaches_a_leaf(depends, verdicts):
    values = torch.linspace(1, 2, 4, requires_grad=True)
    with Observation(keep_going=False) as recorder:
        table = torch.ones(4, 3, requires_grad=depends) * 5
        for place in range(2):
            table = WriteColumn.apply(table, values * 2, place)

    found = recorder.trace("case", Ending("finished")).functions

    assert {check.verdict for check in found} == verdicts


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_backward_is_silent(name):
    cls, args = RIGHT[name]
    found = checks(cls, args)
    assert {check.verdict for check in found} == {"right"}
    assert diagnose(Trace("case", functions=found)) == ()


@pytest.mark.parametrize("name", INTENDED)
def test_what_differs_on_purpose_is_a_note(name):
    cls, args = INTENDED[name]
    found = checks(cls, args)
    assert "intended" in {check.verdict for check in found}
    severities = {finding.severity for finding in diagnose(Trace("case", functions=found))}
    assert severities == {Severity.NOTE}


def test_an_authors_reason_is_told():
    cls, args = INTENDED["said so"]
    (finding,) = diagnose(Trace("case", functions=checks(cls, args)))
    assert cls.gradscope_ok in finding.why


@pytest.mark.parametrize(
    "name, words",
    {
        "without 1 / N": ["by a factor of 12", "`x.numel()`"],
        "a forgotten mask": ["wrong where x < 0"],
        "the first row only": ["index 1, 2, 3 of dimension 0"],
        "the wrong tensor saved": ["x where the output is needed"],
        "a weight that is not transposed": ["w where its transpose is needed"],
        "the quotient rule": ["too large by a factor of 1 + |x|"],
        "the sum of grad_output": ["only the sum of grad_output"],
        "not summed": ["to be summed over dimension 1"],
        "swapped": ["the gradient of `b`"],
    }.items(),
)
def test_the_explanation_has_the_numbers(name, words):
    cls, args, _ = CALLS[name]
    finding, *_ = diagnose(Trace("case", functions=checks(cls, args)))
    for word in words:
        assert word in finding.label


def test_the_worst_element_is_told_with_both_numbers():
    cls, args, _ = CALLS["nothing fits"]
    (check,) = checks(cls, args)
    x = args[0].detach()[check.worst.index].double()
    slope = x.cos() * x.exp() + x.sin() * x.exp()
    wrong = x.cos() + x.exp()
    assert check.worst.at == pytest.approx(float(x))
    assert check.worst.got / check.worst.right == pytest.approx(float(wrong / slope), rel=1e-6)


# Cost and transparency


@pytest.mark.parametrize("name", [*CALLS, *RIGHT])
def test_no_more_calls_than_allowed(name):
    cls, args, *_ = CALLS.get(name) or RIGHT[name]
    assert all(0 < check.compared.calls <= MOST_CALLS for check in checks(cls, args))


def test_a_signature_is_looked_at_once_and_a_class_a_few_times():
    with Observation(keep_going=False) as recorder:
        for rows in (3, 3, 3, 4, 5, 6, 7, 8):
            right_functions.ReLU.apply(torch.randn(rows, 2, requires_grad=True))
    assert [check.numel for check in recorder.functions.found] == [6, 8, 10, 12]


def test_a_large_call_is_checked_on_its_first_rows_where_forward_treats_them_one_by_one():
    large = torch.rand(1 << 20, 5, requires_grad=True)
    with Observation(keep_going=False) as recorder:
        wrong_functions.Doubled.apply(large)
        SquaredSum.apply(large)
    [check] = recorder.functions.found
    [first, other] = recorder.functions.not_checked

    assert (check.verdict, check.numel) == ("wrong", 104_857 * 5)
    assert first.what.startswith("the backward of `Doubled` beyond the first 104,857 of")
    assert first.why == "5.2 million elements; at most 4.2 million are checked"
    assert other.what == "the backward of `SquaredSum`" and "one by one" in other.why


def test_a_call_that_takes_too_long_is_checked_on_its_first_rows(monkeypatch):
    monkeypatch.setattr(function_checks, "SECONDS_EACH", 2.0)
    monkeypatch.setattr(function_checks, "SLICE", 64)
    with Observation(keep_going=False) as recorder:
        SlowInFloat64.apply(torch.rand(100, 2, requires_grad=True))
    [check] = recorder.functions.found
    [rest] = recorder.functions.not_checked

    assert (check.verdict, check.numel) == ("wrong", 32 * 2)
    assert rest.what == "the backward of `SlowInFloat64` beyond the first 32 of 100 rows"
    assert rest.why.startswith("no answer in 2 seconds")


class SlowInFloat64(wrong_functions.Doubled):
    @staticmethod
    def forward(ctx, x):
        if x.dtype is torch.float64 and len(x) > 32:
            time.sleep(60)
        return wrong_functions.Doubled.forward(ctx, x)


class SquaredSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


def test_a_call_without_gradient_is_let_be():
    assert checks(right_functions.ReLU, (torch.randn(3),)) == ()
    with torch.no_grad():
        assert checks(right_functions.ReLU, (torch.randn(3, requires_grad=True),)) == ()


def test_nothing_is_checked_when_it_is_turned_off():
    cls, args, _ = CALLS["sign"]
    assert checks(cls, args, check_functions=False) == ()


def training(recorded: bool) -> list[object]:
    """Losses, gradients and random numbers of a program with Functions of every kind."""
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(5)
    right_functions.Stateful.calls = 0
    found: list[object] = []

    def run() -> None:
        weight = torch.randn(6, 6, requires_grad=True)
        for _ in range(3):
            h = right_functions.Dropout.apply(weight, 0.3)
            h = right_functions.Stateful.apply(h)
            h = right_functions.LayerNorm.apply(right_functions.Reverse.apply(h, 0.3), 1e-5)
            loss = wrong_functions.MissingMean.apply(h, torch.rand(6, 6))
            weight.grad = None
            loss.backward()
            found.extend([loss.item(), weight.grad.numpy().tobytes(), torch.rand(1).item()])
            found.extend([random.random(), numpy.random.rand()])

    if recorded:
        with Observation() as recorder:
            run()
        assert {check.verdict for check in recorder.functions.found} >= {"right", "wrong"}
    else:
        run()
    return [*found, right_functions.Stateful.calls]


def test_the_program_cannot_tell():
    assert training(recorded=True) == training(recorded=False)


def test_a_forward_that_dies_costs_only_its_verdict(tmp_path):
    class Dies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype == torch.float64:
                __import__("os").abort()
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    assert checks(Dies, (torch.randn(3, requires_grad=True),)) == ()


# As a user sees it


def program(name: str) -> str:
    """A script with one wrong Function between two layers, four steps long."""
    cls, args, _ = CALLS[name]
    bases = [base for base in reversed(cls.__mro__) if base.__module__ == wrong_functions.__name__]
    classes = "\n\n".join(inspect.getsource(base) for base in bases)
    shapes = [tuple(arg.shape) for arg in args]
    inputs = "\n".join(
        f"a{i} = torch.randn({shape}){'.requires_grad_()' if arg.requires_grad else ''}"
        for i, (shape, arg) in enumerate(zip(shapes, args, strict=True))
    )
    names = ", ".join(f"a{i}" for i in range(len(args)))
    return (
        f"import torch\nfrom torch.autograd import Function\n\ntorch.manual_seed(0)\n\n{classes}\n"
        f"{inputs}\nfor _ in range(4):\n    out = {cls.__name__}.apply({names})\n"
        f"    loss = (out * out.detach().cos()).sum()\n    loss.backward()\n"
    )


REPAIRED = {
    "sign": "-grad_output * (y * y - 1)",
    "twice": "return grad_output * (1 - y * y)",
    "without 1 / N": "grad_output * 2 * (x - target) / x.numel()",
    "1 / N too many": "grad_output * 2 * x / x.numel() * x.numel()",
    "a mean repeated": "grad_output * (2 * x)",
    "grad_output ignored": "grad_output * (1 - y * y)",
    "that of a reduction ignored": "grad_output.unsqueeze(-1) * torch.exp(",
    "the mean of grad_output": "grad_output * (1 - y * y)",
    "transposed": "(grad_output.T @ x).mT",
    "swapped": "return grad_output * b, grad_output * a",
    "not summed": "(grad_output * w).sum(1)",
    "the quotient rule": "grad / denominator / denominator",
    "the chain rule": "2 * grad_output * (x * x).cos() * x",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPAIRED)
def test_a_relation_that_allows_it_is_repaired_and_verified(name, tmp_path):
    report = diagnosed_text(program(name), tmp_path, verify=True)
    finding = report.findings[0]
    assert finding.rule == "GS301"
    assert finding.step == 0
    fix = finding.fixes[0]
    assert fix.kind == "backward-rewrite"
    assert REPAIRED[name] in (fix.patch or "")
    assert (fix.verified, finding.name) == (True, "bad-custom-backward"), fix.verdict


def test_the_reference_program_is_reported_at_its_first_step(tmp_path):
    report = pipeline.trace(parse_target("custom_backward"), Config(), silent=True)
    (finding,) = report.findings
    assert (finding.rule, finding.step, finding.op) == ("GS301", 0, "mean")
    assert finding.location.function == "MeanSquaredError.backward"
    assert len(report.trace.steps) == 1
    assert [symptom.kind for symptom in report.trace.symptoms] == ["wrong-grad"]
    assert finding.evidence["relations"] == ["ignored", "mean", "factor"]
    assert finding.evidence["factor"] == pytest.approx(100)
    assert any("diverging-training follows at step 1" in number for number in finding.numbers)
    assert finding.fixes[0].verified is True


@pytest.mark.long
def test_with_keep_going_it_leads_over_what_it_causes():
    config = Config(keep_going=True)
    report = pipeline.trace(parse_target("custom_backward"), config, silent=True)
    assert [finding.rule for finding in report.findings] == ["GS301"]
    assert "shows at step 4" in report.findings[0].why
    kinds = {symptom.kind for symptom in report.findings[0].symptoms}
    assert {"wrong-grad", "inf-loss"} <= kinds


def test_turned_off_the_divergence_is_what_is_left():
    config = Config(custom_backward=False, verify=False)
    report = pipeline.trace(parse_target("custom_backward"), config, silent=True)
    assert [finding.name for finding in report.findings] == ["diverging-training"]


def test_its_repair_is_healthy():
    report = pipeline.trace(parse_target("custom_backward_fixed"), Config(), silent=True)
    assert report.findings == ()
    assert {check.verdict for check in report.trace.functions} == {"right"}


def test_an_assignment_is_blamed_where_the_gradient_is_computed(tmp_path):
    text = program("without 1 / N").replace(
        "return grad_output * 2 * (x - target), None",
        "n = x.numel()\n        grad = grad_output * 2 * (x - target)\n        return grad, None",
    )
    (finding,) = diagnosed_text(text, tmp_path, verify=True).findings
    line = text.splitlines()[finding.location.line - 1]
    assert line.strip() == "grad = grad_output * 2 * (x - target)"
    assert finding.op == "mul"
    assert "+        grad = grad_output * 2 * (x - target) / n" in (finding.fixes[0].patch or "")


def test_without_a_fork_the_random_states_are_put_back(monkeypatch):
    monkeypatch.setattr("gradscope.record.probes.function_checks.FORKS", False)
    args = RIGHT["random"][1]
    plain: list[object] = []
    for recorded in (False, True):
        torch.manual_seed(3)
        numpy.random.seed(3)
        if recorded:
            found = checks(right_functions.Dropout, args)
            assert [check.verdict for check in found] == ["right"]
        else:
            right_functions.Dropout.apply(*args)
        plain.append((torch.rand(4).tolist(), numpy.random.rand(2).tolist(), random.getstate()))
    assert plain[0] == plain[1]


def test_without_a_fork_a_function_that_runs_a_model_is_let_be(monkeypatch):
    monkeypatch.setattr("gradscope.record.probes.function_checks.FORKS", False)

    class Runs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, run, x):
            return run(x)

        @staticmethod
        def backward(ctx, grad_output):
            return None, grad_output

    assert checks(Runs, (torch.sin, torch.randn(3, requires_grad=True))) == ()


def test_a_backward_that_is_random_is_not_called_wrong():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * torch.rand_like(grad_output)

    found = checks(Noisy, (torch.randn(3, requires_grad=True),))
    assert [(check.verdict, check.relation.kinds) for check in found] == [
        ("unknown", ("nondeterministic",))
    ]


def test_nan_inside_a_smooth_function_leads_and_its_op_keeps_its_fix(tmp_path):
    text = program("NaN").replace("a0 = torch.randn((2, 3))", "a0 = torch.eye(2, 3)")
    report = diagnosed_text(text, tmp_path, verify=True)
    assert [finding.rule for finding in report.findings][:1] == ["GS301"]
    assert "gives NaN" in report.findings[0].label
    assert any(fix.verified for finding in report.findings[1:] for fix in finding.fixes)
