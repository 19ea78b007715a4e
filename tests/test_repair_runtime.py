"""What-ifs: calls that no patch can reach are changed while the program runs."""

import errno
import tempfile
from pathlib import Path

import pytest

from gradscope.diagnose import diagnose
from gradscope.facts import Finding, Fix, NotTried, Reason, Refuted
from gradscope.facts.verdicts import Cause, CauseAppears, Unchanged
from gradscope.programs import RunOptions, Script, run
from gradscope.repair import Again, repair

LIBRARY = """
import torch
p = torch.tensor([0.0, 0.5], requires_grad=True)
d = torch.distributions.Geometric(probs=p, validate_args=False)
loss = -d.log_prob(torch.tensor([1.0, 2.0])).sum()
loss.backward()
"""

FUNCTIONAL = """
import torch
import torch.nn.functional as F
x = torch.zeros(2, 3, requires_grad=True)
y = F.normalize(x + torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), p=1.5, dim=1, eps=0.0)
loss = y[0].sum()
loss.backward()
"""

MODULE = """
import torch
x = torch.tensor([[1e-7, 2.0]], requires_grad=True)
spread = torch.tensor([[0.0, 1.0]])
loss = torch.nn.GaussianNLLLoss(eps=0.0)(x, torch.zeros(1, 2), spread)
loss.backward()
"""

GENERATED = """
import torch
names = {"torch": torch}
exec("def f(x):\\n    return torch.where(x > 0, x ** 0.5, 0.0)", names)
x = torch.tensor([0.0, 4.0], requires_grad=True)
loss = names["f"](x).sum()
loss.backward()
"""

TWO_CULPRITS = """
import torch
p = torch.tensor([0.0, 0.5], requires_grad=True)
d = torch.distributions.Pareto(p, 2.0, validate_args=False)
loss = d.log_prob(torch.tensor([1.0, 2.0])).sum()
loss.backward()
"""

COMPILED = """
import torch
import torch.nn.functional as F
x = torch.tensor([200.0, 1.0], requires_grad=True)
loss = F.poisson_nll_loss(x * 1, torch.tensor([1.0, 2.0])).sum()
loss.backward()
"""

# Once log(0) is finite, the program breaks by another cause.
NO_HELP = """
import torch
names = {"torch": torch}
exec(
    "def f(x):\\n"
    "    y = torch.log(x)\\n"
    "    return y if torch.isinf(y).any() else y * float('nan')",
    names,
)
x = torch.tensor([0.0, 4.0], requires_grad=True)
loss = names["f"](x).sum()
loss.backward()
"""


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """The findings of a program, with their fixes tried."""
    monkeypatch.chdir(tmp_path)

    def tried(text: str, *, verify: bool = True) -> tuple[Finding, ...]:
        Path("program.py").write_text(text)
        target, options = Script(Path("program.py"), (), "program.py"), RunOptions(steps=3)
        trace = run(target, options, silent=True)
        return repair(trace, diagnose(trace), Again(target, options, trace), verify=verify)

    return tried


def first(findings: tuple[Finding, ...]) -> Fix:
    assert findings, "the program is not diagnosed"
    return findings[0].fixes[0]


@pytest.mark.parametrize("text", [LIBRARY, FUNCTIONAL, MODULE, GENERATED])
def test_a_call_that_no_patch_reaches_is_guarded_as_it_runs(traced, text):
    fix = first(traced(text))
    assert fix.verified is True and fix.verdict.at_run_time
    assert fix.title.startswith("what if: ")
    assert fix.patch is None and not fix.edits
    assert fix.safety == "display-only"


def test_a_masked_branch_keeps_the_loss_and_the_other_gradients(traced):
    fix = first(traced(GENERATED))
    assert fix.kind == "masked-branch"
    effects = fix.verdict.effects
    assert (effects.change.symptom.bad, effects.change.bad_after) == (1, 0)
    assert (effects.loss, effects.unchanged) == ((2.0, 2.0), Unchanged(1, all_of_them=False))


def test_two_culprits_of_one_library_call_are_guarded_together(traced):
    fix = first(traced(TWO_CULPRITS))
    assert fix.verified is True
    assert ", and keep " in fix.title


def test_a_change_that_does_not_help_is_refuted(traced):
    fixes = [fix for fix in traced(NO_HELP)[0].fixes if fix.title.startswith("what if: ")]
    assert fixes
    assert all(fix.verified is False for fix in fixes)
    assert Refuted(CauseAppears(Cause("GS103", "inf-arithmetic", 3)), at_run_time=True) in [
        fix.verdict for fix in fixes
    ]


def test_the_same_op_on_another_line_is_left_alone(traced):
    text = GENERATED.replace("torch.where(x > 0, x ** 0.5, 0.0)", "x ** 0.5")
    elsewhere = "assert (torch.zeros(1) ** 0.5).item() == 0\n"
    fix = first(traced(text.replace("loss.backward()", elsewhere + "loss.backward()")))
    assert fix.kind == "epsilon" and fix.title.startswith("what if: ")
    assert fix.verified is True


def test_an_op_that_only_compiled_code_calls_is_not_tried(traced):
    fixes = traced(COMPILED)[0].fixes
    assert all(fix.verified is None for fix in fixes)
    assert fixes[0].verdict.unreached == "exp"


def test_a_patch_comes_before_a_what_if(traced):
    fixes = traced("""
import torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
loss = torch.where(x > 0, x.sqrt(), 0.0).sum()
loss.backward()
""")[0].fixes
    assert fixes[0].verified is True and fixes[0].patch
    assert not any(fix.title.startswith("what if") for fix in fixes)


def test_nothing_is_tried_without_verification(traced):
    fix = first(traced(LIBRARY, verify=False))
    assert fix.verified is None and not fix.title.startswith("what if")


def test_a_full_disk_costs_the_what_if_alone(traced, monkeypatch):
    def full(*_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", full)

    verdict = first(traced(LIBRARY)).verdict
    assert verdict == NotTried(Reason.MACHINE, "No usable temporary directory found")
