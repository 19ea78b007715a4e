"""The op table against torch itself: each edge breaks there, and each guard mends it."""

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.ops import OPS, Edge, Nature, eps_for, finfo, lookup
from gradscope.ops.dtypes import FINFO, Margin

MAX = finfo("float32").max
INF = math.inf


@dataclass(frozen=True)
class Sample:
    """One point on one edge. Operands that are floats become float32 tensors with a gradient;
    those in `fixed` stay Python numbers."""

    op: str
    source: str
    nature: Nature
    values: dict[str, float]
    fixed: dict[str, float] = field(default_factory=dict)
    cause: str = ""
    dtype: str = "float32"  # of the result

    def __str__(self) -> str:
        return f"{self.source} at {self.values | self.fixed}"

    def known(self) -> dict[str, float]:
        found = self.values | self.fixed | {"dtype.max": finfo(self.dtype).max}
        found |= {f"{name}.requires_grad": 1.0 for name in self.values}
        found |= {"grad_input": math.nan}  # asked for where the operand is not saved
        return found

    def edge(self) -> Edge | None:
        fact = lookup(self.op)
        breaks_value = Edge(bool, "", nature=self.nature).breaks_value
        return fact.value_edge(self.known()) if breaks_value else fact.slope_edge(self.known())


N = Nature
SAMPLES = [
    Sample("sqrt", "torch.sqrt(self)", N.INFINITE_SLOPE, {"self": 0.0}),
    Sample("sqrt", "torch.sqrt(self)", N.DOMAIN, {"self": -1.0}, cause="domain-error"),
    Sample("rsqrt", "torch.rsqrt(self)", N.POLE, {"self": 0.0}, cause="zero-division"),
    Sample("rsqrt", "torch.rsqrt(self)", N.DOMAIN, {"self": -2.0}),
    Sample("rsqrt", "torch.rsqrt(self)", N.SLOPE_OVERFLOW, {"self": 1e-30}),
    Sample("pow", "self ** exponent", N.INFINITE_SLOPE, {"self": 0.0, "exponent": 0.5}),
    Sample("pow", "self ** exponent", N.INFINITE_SLOPE, {"self": 0.0}, {"exponent": 1 / 2.4}),
    Sample("pow", "self ** exponent", N.POLE, {"self": 0.0}, {"exponent": -1.0}, "zero-division"),
    Sample("pow", "self ** exponent", N.DOMAIN, {"self": -0.5}, {"exponent": 0.4}, "domain-error"),
    Sample("pow", "self ** exponent", N.DOMAIN, {"self": -0.5}, {"exponent": 2.2}, "domain-error"),
    Sample("pow", "self ** exponent", N.OVERFLOW, {"self": 1e30}, {"exponent": 2.0}, "overflow"),
    Sample("pow", "self ** exponent", N.INFINITE_INPUT, {"self": 0.5, "exponent": INF}),
    Sample("pow", "self ** exponent", N.SLOPE_OVERFLOW, {"self": 1e-30}, {"exponent": -0.5}),
    Sample("pow", "self ** exponent", N.UNDEFINED_SLOPE, {"self": -2.0, "exponent": 2.0}),
    Sample("hypot", "torch.hypot(self, other)", N.UNDEFINED_SLOPE, {"self": 0.0, "other": 0.0}),
    Sample("hypot", "torch.hypot(self, other)", N.OVERFLOW, {"self": 3e38, "other": 3e38}),
    Sample("div", "self / other", N.POLE, {"self": 1.0, "other": 0.0}, cause="zero-division"),
    Sample(
        "_weight_norm_interface",
        "torch._weight_norm(v.reshape(1, 1), g.reshape(1, 1), 0)",
        N.POLE,
        {"v": 0.0, "g": 1.0},
        cause="zero-division",
    ),
    Sample("div", "self / other", N.POLE, {"self": 0.0, "other": 0.0}, cause="zero-division"),
    Sample("div", "self / other", N.DOMAIN, {"self": INF, "other": INF}, cause="inf-arithmetic"),
    Sample("div", "self / other", N.OVERFLOW, {"self": 1.0, "other": 1e-40}, cause="overflow"),
    Sample("div", "self / other", N.OVERFLOW, {"self": 3e38, "other": 0.1}, cause="overflow"),
    Sample("div", "self / other", N.SLOPE_OVERFLOW, {"self": 1.0, "other": -1e-30}),
    Sample("div", "self / other", N.SLOPE_OVERFLOW, {"self": 3e37, "other": 0.1}, cause="overflow"),
    Sample("reciprocal", "torch.reciprocal(self)", N.POLE, {"self": 0.0}, cause="zero-division"),
    Sample("reciprocal", "torch.reciprocal(self)", N.OVERFLOW, {"self": 1e-40}),
    Sample("reciprocal", "torch.reciprocal(self)", N.SLOPE_OVERFLOW, {"self": 1e-30}),
    Sample(
        "addcdiv",
        "torch.addcdiv(self, tensor1, tensor2)",
        N.POLE,
        {"self": 1.0, "tensor1": 1.0, "tensor2": 0.0},
    ),
    Sample(
        "addcdiv",
        "torch.addcdiv(self, tensor1, tensor2)",
        N.SLOPE_OVERFLOW,
        {"self": 1.0, "tensor1": 1.0, "tensor2": 1e-30},
    ),
    Sample("fmod", "torch.fmod(self, other)", N.POLE, {"self": 1.0, "other": 0.0}),
    Sample("fmod", "torch.fmod(self, other)", N.SLOPE_OVERFLOW, {"self": 1.0, "other": 1e-42}),
    Sample("fmod", "torch.fmod(self, other)", N.SLOPE_OVERFLOW, {"self": 3e38, "other": 0.1}),
    Sample("remainder", "self % other", N.POLE, {"self": 1.0, "other": 0.0}),
    Sample("remainder", "self % other", N.SLOPE_OVERFLOW, {"self": 1.0, "other": 1e-42}),
    *(
        sample
        for name in ("log", "log2", "log10")
        for sample in (
            Sample(name, f"torch.{name}(self)", N.POLE, {"self": 0.0}, cause="log-zero"),
            Sample(name, f"torch.{name}(self)", N.DOMAIN, {"self": -1.0}, cause="domain-error"),
            Sample(name, f"torch.{name}(self)", N.SLOPE_OVERFLOW, {"self": 1e-42}),
        )
    ),
    Sample("log1p", "torch.log1p(self)", N.POLE, {"self": -1.0}, cause="log-zero"),
    Sample("log1p", "torch.log1p(self)", N.DOMAIN, {"self": -2.0}, cause="domain-error"),
    Sample("logit", "torch.logit(self)", N.POLE, {"self": 0.0}, cause="log-zero"),
    Sample("logit", "torch.logit(self)", N.POLE, {"self": 1.0}, cause="log-zero"),
    Sample("logit", "torch.logit(self)", N.DOMAIN, {"self": 1.5}, cause="domain-error"),
    Sample("logit", "torch.logit(self)", N.SLOPE_OVERFLOW, {"self": 1e-42}),
    Sample("xlogy", "torch.xlogy(self, other)", N.POLE, {"self": 1.0, "other": 0.0}),
    Sample("xlogy", "torch.xlogy(self, other)", N.DOMAIN, {"self": 1.0, "other": -1.0}),
    Sample("xlogy", "torch.xlogy(self, other)", N.REMOVABLE, {"self": 0.0, "other": 0.0}),
    Sample("xlogy", "torch.xlogy(self, other)", N.SLOPE_OVERFLOW, {"self": 1.0, "other": 1e-42}),
    Sample("special_entr", "torch.special.entr(self)", N.INFINITE_SLOPE, {"self": 0.0}),
    Sample("special_entr", "torch.special.entr(self)", N.DOMAIN, {"self": -0.5}),
    Sample(
        "special_xlog1py",
        "torch.special.xlog1py(self, other)",
        N.REMOVABLE,
        {"self": 0.0, "other": -1.0},
    ),
    Sample(
        "special_xlog1py",
        "torch.special.xlog1py(self, other)",
        N.POLE,
        {"self": 1.0, "other": -1.0},
    ),
    Sample("acos", "torch.acos(self)", N.INFINITE_SLOPE, {"self": 1.0}),
    Sample("acos", "torch.acos(self)", N.INFINITE_SLOPE, {"self": -1.0}),
    Sample("acos", "torch.acos(self)", N.DOMAIN, {"self": 1.0001}, cause="domain-error"),
    Sample("asin", "torch.asin(self)", N.INFINITE_SLOPE, {"self": -1.0}),
    Sample("asin", "torch.asin(self)", N.DOMAIN, {"self": -3.0}),
    Sample("acosh", "torch.acosh(self)", N.INFINITE_SLOPE, {"self": 1.0}),
    Sample("acosh", "torch.acosh(self)", N.DOMAIN, {"self": 0.5}),
    Sample("atanh", "torch.atanh(self)", N.POLE, {"self": 1.0}),
    Sample("atanh", "torch.atanh(self)", N.DOMAIN, {"self": 2.0}),
    Sample("erfinv", "torch.erfinv(self)", N.POLE, {"self": -1.0}),
    Sample("erfinv", "torch.erfinv(self)", N.DOMAIN, {"self": 1.5}, cause="domain-error"),
    Sample("special_ndtri", "torch.special.ndtri(self)", N.POLE, {"self": 0.0}),
    Sample("special_ndtri", "torch.special.ndtri(self)", N.DOMAIN, {"self": 1.5}),
    Sample("special_ndtri", "torch.special.ndtri(self)", N.SLOPE_OVERFLOW, {"self": 1e-42}),
    Sample("exp", "torch.exp(self)", N.OVERFLOW, {"self": 89.0}, cause="overflow"),
    Sample("exp2", "torch.exp2(self)", N.OVERFLOW, {"self": 200.0}, cause="overflow"),
    Sample("expm1", "torch.expm1(self)", N.OVERFLOW, {"self": 89.0}, cause="overflow"),
    Sample("sinh", "torch.sinh(self)", N.OVERFLOW, {"self": -100.0}, cause="overflow"),
    Sample("cosh", "torch.cosh(self)", N.OVERFLOW, {"self": -100.0}, cause="overflow"),
    Sample("i0", "torch.i0(self)", N.OVERFLOW, {"self": 100.0}),
    Sample("special_i1", "torch.special.i1(self)", N.OVERFLOW, {"self": -100.0}),
    Sample("silu", "torch.nn.functional.silu(self)", N.DOMAIN, {"self": -INF}),
    Sample("mish", "torch.nn.functional.mish(self)", N.DOMAIN, {"self": -INF}),
    Sample("hardswish", "torch.nn.functional.hardswish(self)", N.OVERFLOW, {"self": MAX}),
    Sample(
        "gelu",
        "torch.nn.functional.gelu(self, approximate='tanh')",
        N.SLOPE_OVERFLOW,
        {"self": 1e30},
    ),
    Sample("special_erfcx", "torch.special.erfcx(self)", N.OVERFLOW, {"self": -100.0}),
    Sample("special_erfcx", "torch.special.erfcx(self)", N.INFINITE_INPUT, {"self": INF}),
    Sample("special_erfcx", "torch.special.erfcx(self)", N.SLOPE_OVERFLOW, {"self": MAX}),
    Sample("special_log_ndtr", "torch.special.log_ndtr(self)", N.OVERFLOW, {"self": -1e30}),
    Sample("ldexp", "torch.ldexp(self, other)", N.OVERFLOW, {"self": 1.0, "other": 200.0}),
    Sample("lgamma", "torch.lgamma(self)", N.POLE, {"self": 0.0}),
    Sample("lgamma", "torch.lgamma(self)", N.POLE, {"self": -1.0}),
    Sample("lgamma", "torch.lgamma(self)", N.OVERFLOW, {"self": MAX}),
    Sample("lgamma", "torch.lgamma(self)", N.SLOPE_OVERFLOW, {"self": 1e-42}),
    Sample("digamma", "torch.digamma(self)", N.POLE, {"self": 0.0}),
    Sample("digamma", "torch.digamma(self)", N.DOMAIN, {"self": -1.0}),
    Sample("digamma", "torch.digamma(self)", N.OVERFLOW, {"self": 1e-42}),
    Sample("digamma", "torch.digamma(self)", N.SLOPE_OVERFLOW, {"self": 1e-30}),
    Sample("polygamma", "torch.polygamma(n, self)", N.POLE, {"self": 0.0}, {"n": 0}),
    Sample("polygamma", "torch.polygamma(n, self)", N.DOMAIN, {"self": -1.0}, {"n": 0}),
    Sample("polygamma", "torch.polygamma(n, self)", N.OVERFLOW, {"self": 1e-30}, {"n": 1}),
    Sample("polygamma", "torch.polygamma(n, self)", N.INFINITE_SLOPE, {"self": -1.0}, {"n": 1}),
    Sample("polygamma", "torch.polygamma(n, self)", N.INFINITE_INPUT, {"self": INF}, {"n": 1}),
    Sample("polygamma", "torch.polygamma(n, self)", N.SLOPE_OVERFLOW, {"self": 1e-30}, {"n": 0}),
    Sample("mvlgamma", "torch.mvlgamma(self, p)", N.DOMAIN, {"self": 1.0}, {"p": 3}),
    Sample("mvlgamma", "torch.mvlgamma(self, p)", N.OVERFLOW, {"self": MAX}, {"p": 3}),
    Sample("mvlgamma", "torch.mvlgamma(self, p)", N.SLOPE_OVERFLOW, {"self": 1e-42}, {"p": 1}),
    Sample("add", "self + other", N.OVERFLOW, {"self": MAX, "other": MAX}),
    Sample("add", "self + other", N.DOMAIN, {"self": INF, "other": -INF}, cause="inf-arithmetic"),
    Sample("sub", "self - other", N.OVERFLOW, {"self": MAX, "other": -MAX}),
    Sample("sub", "self - other", N.DOMAIN, {"self": INF, "other": INF}, cause="inf-arithmetic"),
    Sample("rsub", "torch.rsub(self, other)", N.OVERFLOW, {"self": MAX, "other": -MAX}),
    Sample("mul", "self * other", N.OVERFLOW, {"self": 1e30, "other": 1e30}),
    Sample("mul", "self * other", N.DOMAIN, {"self": 0.0, "other": INF}, cause="inf-arithmetic"),
    Sample("_to_copy", "self.half()", N.OVERFLOW, {"self": 1e6}, dtype="float16"),
    Sample("frexp", "torch.frexp(self)[0]", N.SLOPE_OVERFLOW, {"self": 1e-42}),
    Sample("atan2", "torch.atan2(self, other)", N.INFINITE_INPUT, {"self": INF, "other": 1.0}),
    Sample("sinc", "torch.sinc(self)", N.OVERFLOW, {"self": MAX}),
    Sample("lerp", "torch.lerp(self, end, 0.5)", N.OVERFLOW, {"self": MAX, "end": -MAX}),
    Sample("rad2deg", "torch.rad2deg(self)", N.OVERFLOW, {"self": MAX}),
]


def run(source: str, sample: Sample, **texts: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The value and the leaves, after backward. `texts` replace operands in the source."""
    leaves = {
        name: torch.tensor([value], requires_grad=True) for name, value in sample.values.items()
    }
    scope = {"torch": torch, **leaves, **sample.fixed}
    for name, text in texts.items():
        scope[name] = eval(text, dict(scope))
    value = eval(source, dict(scope))
    value.sum().backward()
    return value.detach(), leaves


def gradients(leaves: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [leaf.grad for leaf in leaves.values() if leaf.grad is not None]


def all_finite(tensors: list[torch.Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
class TestEdges:
    def test_the_table_knows_the_edge(self, sample):
        edge = sample.edge()

        assert edge.nature is sample.nature
        assert sample.cause in ("", edge.cause)

    def test_torch_breaks_there(self, sample):
        value, leaves = run(sample.source, sample)

        if sample.edge().breaks_value:
            assert not value.isfinite().all()
        else:
            assert value.isfinite().all()
            assert not all_finite(gradients(leaves))

    def test_the_guard_mends_value_and_slope(self, sample):
        edge = sample.edge()
        if not edge.cure.guard:
            pytest.skip("an edge without a guard: advice only")
        texts = {name: name for name in sample.fixed}

        eps = edge.cure.eps(sample.dtype)
        guarded = edge.cure.guard.format(x=edge.argument, eps=eps, **texts)
        value, leaves = run(sample.source, sample, **{edge.argument: guarded})

        assert all_finite([value, *gradients(leaves)])

    def test_the_harmless_operand_passes_no_gradient(self, sample):
        edge = sample.edge()
        if not edge.cure.condition:
            pytest.skip("an edge that no single operand mends")
        eps = edge.cure.eps(sample.dtype)
        text = f"torch.where({edge.cure.condition}, {{x}}, {edge.cure.harmless})"
        safe = text.format(x=edge.argument, eps=eps, **{name: name for name in sample.fixed})
        others = {
            name: f"torch.where({name}.isfinite(), {name}, 1.0)"
            for name, value in sample.values.items()
            if name != edge.argument and not math.isfinite(value)
        }

        value, leaves = run(sample.source, sample, **{edge.argument: safe}, **others)

        assert all_finite([value, *gradients(leaves)])
        assert leaves[edge.argument].grad.item() == 0


class _Names(TorchDispatchMode):
    """The ops that arrive below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func._schema.name.removeprefix("aten::").rstrip("_"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_the_op_arrives_under_the_name_of_the_table(sample):
    names = _Names()
    with names:
        run(sample.source, sample)

    others = {"ldexp": "mul"}  # that torch 2.6 makes of it
    assert {sample.op, others.get(sample.op)} & {*names.seen}


ATEN = {
    name.removeprefix("aten::").partition(".")[0].removesuffix("_")
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("aten::")
}


@pytest.mark.parametrize("fact", OPS.values(), ids=lambda fact: fact.name)
class TestFacts:
    def test_the_op_is_one_of_aten(self, fact):
        later = {"_fused_rms_norm"}  # than torch 2.6
        assert fact.name in ATEN | later

    def test_ordinary_operands_lie_on_no_edge(self, fact):
        names = {edge.argument for edge in fact.edges} | {"self", "other", "exponent", "end"}
        ordinary = dict.fromkeys(names | {"tensor1", "tensor2"}, 0.75)
        if fact.name in ("acosh", "mvlgamma", "special_zeta"):
            ordinary["self"] = 2.5
        ordinary |= {"dtype.max": MAX, "n": 1, "p": 2, "output": 1.0}

        assert fact.value_edge(ordinary) is None
        assert fact.slope_edge(ordinary) is None

    @pytest.mark.parametrize("size", (0.0, 5e-324, 1e-200, 1e200, INF, math.nan))
    def test_no_number_is_too_large_or_too_small_to_ask_about(self, fact, size):
        others = {edge.argument for edge in fact.edges} | {"self", "other", "exponent", "end"}
        known = dict.fromkeys(others | {"tensor1", "tensor2", "n", "p", "output"}, size)
        known |= {f"{name}.{end}": size for name in others for end in ("min", "max")}
        known |= {"dtype.max": finfo("float64").max, "grad_input": math.nan}

        fact.value_edge(known)
        fact.slope_edge(known)
        if fact.inverse is not None:
            fact.inverse(size)

    def test_templates_are_expressions(self, fact):
        schema = {"other": "b", "p": "3", "n": "1", "dim": "-1", "tensor2": "c"}
        for edge in fact.edges:
            for template in (edge.cure.guard, edge.cure.condition, edge.cure.harmless):
                if template:
                    compile(template.format(x="a.b()", eps="1e-6", **schema), "<edge>", "eval")

    def test_a_condition_comes_with_a_harmless_value(self, fact):
        for edge in fact.edges:
            assert bool(edge.cure.condition) == bool(edge.cure.harmless)


@pytest.mark.parametrize("dtype", FINFO)
class TestDtypes:
    def test_limits_are_torchs(self, dtype):
        truth = torch.finfo(getattr(torch, dtype))
        found = finfo(dtype)

        assert (found.max, found.tiny, found.eps) == (truth.max, truth.tiny, truth.eps)

    @pytest.mark.parametrize("margin", Margin)
    def test_the_dtype_resolves_each_eps(self, dtype, margin):
        eps = torch.tensor(eps_for(dtype, margin), dtype=getattr(torch, dtype))

        assert eps.isfinite() and eps > 0
        assert torch.reciprocal(eps).isfinite()
        assert eps.sqrt().reciprocal().isfinite()

    def test_an_endpoint_is_not_rounded_back(self, dtype):
        eps = eps_for(dtype, Margin.ENDPOINT)
        ends = torch.tensor([1 - eps, 1 + eps], dtype=getattr(torch, dtype))

        assert ends[0] < 1 < ends[1]

    @pytest.mark.parametrize("margin", [Margin.EXPONENT, Margin.SQUARE])
    def test_what_is_let_through_can_be_squared(self, dtype, margin):
        x = torch.tensor(eps_for(dtype, margin), dtype=getattr(torch, dtype))
        result = x.exp() if margin is Margin.EXPONENT else x

        assert result.square().isfinite()


def test_a_complex_dtype_has_the_limits_of_its_parts():
    assert finfo("torch.complex128") == finfo("float64")
    assert finfo("int64") == finfo("float32")


@pytest.mark.parametrize("op", [op for op, fact in OPS.items() if fact.inverse is not None])
def test_the_operand_is_found_again_in_the_result_that_the_node_saves(op):
    x = torch.tensor([0.25, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    result = getattr(torch, op)(x)

    assert hasattr(result.grad_fn, "_saved_result")
    assert not hasattr(result.grad_fn, "_saved_self")
    assert [OPS[op].inverse(one) for one in result.tolist()] == pytest.approx(x.tolist())
