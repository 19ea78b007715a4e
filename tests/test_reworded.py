"""Words are for people: with other words in every finding and fix, nothing but words changes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from corpus import diagnosed_file

import gradscope
from gradscope.facts import Finding, Fix, Report, Trace
from gradscope.repair import patched as module_of_patches
from gradscope.rules import RULES, Rule

HERE = Path(__file__).parent
EXAMPLES = Path(gradscope.__file__).parent / "examples"
PROGRAMS = [
    EXAMPLES / "gamma_mask.py",  # a harmless operand
    EXAMPLES / "custom_backward.py",  # a relation, a divergence and its learning rate
    HERE / "cases/descent_by_hand_on_raw_columns.py",  # a rate that is written by hand
]
TRAINING = {
    "clipped too late": """
import torch
w = torch.full((3,), 5.0, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=1e-3)
for _ in range(4):
    optimizer.zero_grad()
    (w ** 4).sum().backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_([w], 1.0)
""",
    "detached": """
import torch
first, last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=1e-2)
for _ in range(4):
    optimizer.zero_grad()
    last(first(torch.ones(2, 3)).detach()).square().mean().backward()
    optimizer.step()
""",
    "a wrong tensor is saved": """
import torch
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x)
        return y
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y
x = torch.tensor([0.5, 1.0, 1.5], requires_grad=True)
Exp.apply(x).square().sum().backward()
""",
    "wrong beyond a bound": """
import torch
class Relu6(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(max=6)
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.clone()
x = torch.tensor([1.0, 2.0, 7.0, 8.0], requires_grad=True)
Relu6.apply(x).square().sum().backward()
""",
}


def other(words: str) -> str:
    """Other words, and others for each."""
    return words[::-1]


def reworded(finding: Finding) -> Finding:
    return replace(
        finding,
        message=other(finding.message),
        why=other(finding.why),
        label=other(finding.label),
        numbers=tuple(map(other, finding.numbers)),
        related=tuple(replace(one, message=other(one.message)) for one in finding.related),
        fixes=tuple(renamed(fix) for fix in finding.fixes),
        evidence={},
    )


def renamed(fix: Fix) -> Fix:
    return replace(fix, title=other(fix.title), code=other(fix.code))


def with_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_into(kind: type[Rule]) -> None:
        check = kind.check

        def again(self: Rule, trace: Trace, roots: Any) -> Iterator[Finding]:
            yield from map(reworded, check(self, trace, roots))

        monkeypatch.setattr(kind, "check", again)

    for kind in {type(rule) for rule in RULES.values()}:
        put_into(kind)
    patched = module_of_patches.patched

    def also_renamed(*given: Any) -> module_of_patches.Patched | None:
        found = patched(*given)
        made = (replace(one, title=other(one.title)) for one in found.made) if found else ()
        return found and replace(found, made=tuple(made))

    monkeypatch.setattr(module_of_patches, "patched", also_renamed)


def beyond_words(report: Report) -> list[object]:
    """The findings and their fixes, in order, with all that is no sentence."""
    return [
        (
            one.rule,
            one.severity,
            one.phase,
            one.step,
            one.op,
            one.location,
            one.symptoms,
            [(place.role, place.location) for place in one.related],
            [(fix.kind, fix.safety, fix.patch, fix.verified, fix.edits) for fix in one.fixes],
        )
        for one in report.findings
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [*PROGRAMS, *TRAINING], ids=lambda one: getattr(one, "stem", one)
)
def test_nothing_but_words_changes(tmp_path, monkeypatch, program):
    if isinstance(program, str):
        script = tmp_path / "train.py"
        script.write_text(TRAINING[program], encoding="utf-8")
        program = script
    monkeypatch.chdir(program.parent)
    plain = diagnosed_file(program, verify=True)
    with_other_words(monkeypatch)
    other_words = diagnosed_file(program, verify=True)

    assert plain.findings and any(fix.patch for one in plain.findings for fix in one.fixes)
    assert plain.findings[0].message == other(other_words.findings[0].message)
    assert beyond_words(other_words) == beyond_words(plain)
