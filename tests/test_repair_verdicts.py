"""What a second run may be called: never verified unless it was seen to hold."""

import signal
from dataclasses import replace

import pytest
from corpus import REQUESTS, diagnosed_file, finding_of

from gradscope.errors import GradscopeError
from gradscope.facts import (
    CannotRun,
    Cause,
    CauseRemains,
    Edit,
    Effects,
    Ending,
    Finding,
    Fix,
    Gradient,
    GradientBreaks,
    GradientMove,
    Holds,
    HugeElements,
    HugeLoss,
    Location,
    LossMove,
    Measured,
    NotTried,
    ProgramEnds,
    Reason,
    Refuted,
    Step,
    Subject,
    Symptom,
    Trace,
    Trouble,
    Unchanged,
    ValuesMove,
    Verified,
)
from gradscope.facts import requests as ask
from gradscope.programs import NoAnswer
from gradscope.repair import Budget, repaired
from gradscope.repair.serve import without_contradiction
from gradscope.rounds import Rounds, policy, summary, write

TEXT = "import torch\ny = torch.where(x > 0, x ** 0.5, x)\n"
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "loss.py"
    path.write_text(TEXT)
    return path


def gradient(*values: float) -> Gradient:
    finite = [value for value in values if abs(value) < INF]
    bad = len(values) - len(finite)
    return Gradient("x", (len(values),), len(values), bad, sum(finite), str(values), values)


def seen(*losses: float, values=(1.0, 2.0), bad: bool = False, ending: str = "finished") -> Trace:
    symptoms = (Symptom(Trouble.NAN, Subject.GRADIENT, len(losses) - 1, "x", 1, 2),) if bad else ()
    return Trace(
        "loss.py",
        symptoms=symptoms,
        steps=tuple(Step(index, loss, 0.1, 9) for index, loss in enumerate(losses)),
        gradients=(gradient(*values),),
        ending=Ending(ending, "ValueError: no" if ending == "raised" else ""),
    )


BROKEN = seen(3.0, 2.0, values=(NAN, 2.0), bad=True, ending="stopped")
HEALED = seen(3.0, 2.0, values=(0.0, 2.0))


def finding(trace: Trace = BROKEN, kind: str = "masked-branch", **changes) -> Finding:
    found = finding_of(
        "GS101",
        step=trace.symptoms[0].step,
        op="pow",
        location=Location("loss.py", 2, 23, 2, 31, "<module>"),
        measured=Measured((("self", 0.0), ("exponent", 0.5)), "float32"),
        symptoms=trace.symptoms,
        fixes=(Fix(kind, "a fix", request=REQUESTS.get(kind)),),
    )
    return replace(found, **changes)


def in_its_own_dtype(rerun):
    """It runs again with patches alone: nothing can be set up."""

    def run(patches, steps, limit, setup):
        if setup is not None:
            raise NoAnswer
        return rerun(patches, steps, limit)

    return run


def judged(after, *, kind: str = "masked-branch", control: Trace = BROKEN, **more) -> Fix:
    """The first fix of a kind, where a run with a patch gives `after`, one without `control`."""

    @in_its_own_dtype
    def rerun(patches, steps, limit):
        assert steps.stop == 2
        if callable(after) and patches:
            return after(patches)
        return after if patches else control

    def diagnosis(trace: Trace) -> tuple[Finding, ...]:
        return (finding(trace, kind),) if trace.symptoms else ()

    (found,) = repaired(BROKEN, (finding(kind=kind),), rerun, diagnosis=diagnosis, **more)
    return next(fix for fix in found.fixes if fix.kind == kind)


def test_a_fix_that_holds_is_verified(file):
    fix = judged(HEALED)

    assert fix.verified is True
    effects = fix.verdict.effects
    assert (effects.change.symptom, effects.change.bad_after) == (BROKEN.symptoms[0], 0)
    assert (effects.loss, effects.gradient_norm) == ((2.0, 2.0), 2.0)
    assert (effects.unchanged, effects.moves) == (Unchanged(1, all_of_them=False), ())
    assert "+y = torch.where(x > 0, torch.where(x > 0, x, 1.0) ** 0.5, x)" in fix.patch
    assert TEXT == file.read_text()


def test_rounding_is_no_change(file):
    fix = judged(seen(3.0, 2.0, values=(0.0, 2.0 + 2**-20)))

    assert fix.verified is True
    assert fix.verdict.effects.moves == (GradientMove("x", 2**-21),)


@pytest.mark.parametrize(
    ("after", "objection"),
    [
        (BROKEN, CauseRemains(Cause("GS101", "masked-branch", 2))),
        (seen(3.0, 2.0, values=(0.0, 2.0 + 2**-17)), ValuesMove(GradientMove("x", 2**-18))),
        (seen(3.0, 2.5, values=(0.0, 2.0)), ValuesMove(LossMove(1, 0.5))),
        (seen(3.5, 2.0, values=(0.0, 2.0)), ValuesMove(LossMove(0, 0.5))),
        (seen(3.0, 2.0, values=(0.0, 2.5)), ValuesMove(GradientMove("x", 0.25))),
        (seen(3.0, 2.0, values=(0.0, INF)), GradientBreaks("x")),
        (seen(3.0, ending="raised"), ProgramEnds("ValueError: no")),
        (
            replace(HEALED, symptoms=(Symptom(Trouble.INF, Subject.GRADIENT, 1, "z", 1, 1),)),
            CauseRemains(Cause("GS101", "masked-branch", 2)),
        ),
    ],
)
def test_a_fix_made_wrong_on_purpose_is_refuted(file, after, objection):
    assert judged(after).verdict == Refuted(objection)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_run_that_somebody_killed_speaks_against_no_fix(file, number):
    killed = Ending("died", f"{number.name}, sent from outside", -number)
    fix = judged(replace(seen(3.0), ending=killed))

    assert fix.verdict == NotTried(Reason.KILLED, killed.detail)


def test_a_second_run_without_memory_speaks_against_no_fix(file):
    raised = Ending("raised", "MemoryError", 1, out_of_memory=True)

    verdict = judged(replace(seen(3.0), ending=raised)).verdict
    assert verdict == NotTried(Reason.MEMORY, "MemoryError")


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", Reason.KILLED),
        ("torch.empty(1 << 60)", Reason.MEMORY),
    ],
)
def test_only_what_a_fix_does_is_held_against_it(end, reason, here):
    """The program runs a second time where the machine is not as kind to it."""
    script = here / "train.py"
    (here / "runs").touch()  # what was there before, and was written to, is so in the second
    script.write_text(
        "import os, signal, torch\n"
        "if os.path.getsize('runs'):\n"
        f"    {end}\n"
        "with open('runs', 'a') as file:\n"
        "    file.write('one')\n"
        "x = torch.tensor([0.0, 4.0], requires_grad=True)\n"
        "torch.where(x > 0, x.sqrt(), 0.0).sum().backward()\n"
    )
    fixes = diagnosed_file(script, verify=True).findings[0].fixes

    assert {fix.verdict.reason for fix in fixes} == {reason}


def test_a_second_run_that_dies_of_the_patch_refutes_it(file):
    died = Ending("died", "SIGSEGV", -signal.SIGSEGV)

    assert judged(replace(seen(3.0), ending=died)).verdict == Refuted(ProgramEnds("SIGSEGV"))


def test_a_run_that_cannot_be_repeated_verifies_nothing(file):
    """The control run without a patch differs: what the patch did cannot be told."""
    differs = seen(3.3, 2.2, values=(NAN, 2.0), bad=True)

    for after in (seen(3.2, 2.1, values=(0.0, 2.0)), BROKEN):
        fix = judged(after, control=differs)
        assert fix.verdict == NotTried(Reason.NOT_REPEATABLE)


def test_a_control_run_that_the_time_limit_ends_tells_nothing_of_repeatability(file):
    fix = judged(BROKEN, control=seen(3.0, ending="interrupted"))

    assert fix.verdict == NotTried(Reason.TIME, "60")


def test_a_value_may_move_where_the_fix_says_so(file):
    for loss, verified in ((1.9921875, True), (2.25, False)):  # as a small number can do, or more
        fix = judged(seen(3.0, loss, values=(0.0, 2.0)), kind="epsilon")

        assert fix.verdict.effects.moves == (LossMove(1, abs(2.0 - loss)),)
        assert (fix.verified, fix.safety) == (verified, "unsafe")


def test_no_fix_may_break_a_gradient_that_was_finite(file):
    fix = judged(seen(3.0, 2.0, values=(0.0, INF)), kind="epsilon")

    assert fix.verdict == Refuted(GradientBreaks("x"))


def test_a_second_run_that_takes_too_long_is_not_a_verdict(file):
    fix = judged(replace(seen(3.0), ending=Ending("interrupted", "the time limit of 1 s")))

    assert fix.verdict == NotTried(Reason.TIME, "60")


def test_the_time_for_all_of_them_is_limited(file):
    assert judged(HEALED, budget=Budget(0.0)).verdict == NotTried(Reason.TIME, "0")


def test_without_verification_a_patch_is_written_and_not_tried(file):
    fix = judged(HEALED, verify=False)

    assert fix.patch is not None
    assert fix.verdict == NotTried(Reason.VERIFICATION_OFF)


def test_a_refuted_patch_is_never_first(file):
    """The mask's repair fails, the guard of the op holds: the guard leads."""
    kinds = ("masked-branch", "epsilon", "data")
    fixes = tuple(Fix(kind, kind, request=REQUESTS.get(kind)) for kind in kinds)

    @in_its_own_dtype
    def rerun(patches, steps, limit):
        return HEALED if any("clamp_min" in text for text in patches.values()) else BROKEN

    def diagnosis(trace):
        return (finding(trace),) if trace.symptoms else ()

    (found,) = repaired(BROKEN, (finding(fixes=fixes),), rerun, diagnosis=diagnosis)

    assert found.fixes[0].verified is True
    assert "clamp_min" in found.fixes[0].patch
    assert found.fixes[-1].verified is False


def test_what_holds_under_a_title_is_not_refuted_under_it():
    holds = Fix("epsilon", "keep it above 0", verdict=Verified(Effects()))
    fails = replace(holds, verdict=Refuted(GradientBreaks("x")))
    other = replace(fails, title="something else")
    first, second = without_contradiction(
        (finding(fixes=(holds, fails)), finding(fixes=(fails, other)))
    )

    assert (first.fixes, second.fixes) == ((holds,), (other,))


def test_two_culprits_are_repaired_by_one_patch(file):
    """The first patch uncovers the second culprit of the same gradient."""
    file.write_text(TEXT + "z = torch.sqrt(x)\n")
    second = finding(
        rule="GS102",
        op="sqrt",
        location=Location("loss.py", 3, 4, 3, 17, "<module>"),
        fixes=(Fix("epsilon", "b", request=ask.KeepOff()),),
        measured=Measured((("self", 0.0),)),
    )

    @in_its_own_dtype
    def rerun(patches, steps, limit):
        text = "".join(patches.values())
        return HEALED if "1.0) ** 0.5" in text and "clamp_min" in text else BROKEN

    first = finding()

    def diagnosis(trace):
        return (first, second) if trace.symptoms else ()

    @in_its_own_dtype
    def after_first(patches, steps, limit):
        trace = rerun(patches, steps, limit, None)
        return replace(trace, target="patched") if patches else trace

    def diagnosis_after(trace):
        return (second,) if trace.target == "patched" and trace.symptoms else diagnosis(trace)

    found = repaired(BROKEN, (first, second), after_first, diagnosis=diagnosis_after)

    assert [True, True] == [one.fixes[0].verified for one in found]
    assert ", and " in found[0].fixes[0].title
    assert "clamp_min" in found[0].fixes[0].patch


def test_one_place_is_mended_rather_than_two_that_break_by_the_same_zero(tmp_path):
    """The next one divides by what is computed from it, under another name."""
    script = tmp_path / "boxes.py"
    script.write_text(
        "import torch\n"
        "weight = torch.full((2, 1), 0.5, requires_grad=True)\n"
        "boxes = torch.tensor([[2.0, 1.0], [0.0, 0.0]])\n"
        "def loss_of(boxes):\n"
        "    width = boxes.sum(1, keepdim=True)\n"
        "    half = width / 2\n"
        "    near = boxes / width\n"
        "    far = (boxes - 1) / half\n"
        "    return (torch.tanh(near @ weight) - torch.tanh(far * 0 @ weight)).square().mean()\n"
        "loss_of(boxes).backward()\n"
    )
    fix = diagnosed_file(script, verify=True).findings[0].fixes[0]

    assert fix.verified
    assert "width = torch.where(width != 0, width, 1.0)" in fix.patch
    assert "half != 0" not in fix.patch


@pytest.mark.long
def test_a_bound_that_leaves_a_huge_loss_is_not_verified(tmp_path):
    script = tmp_path / "rate.py"
    script.write_text(
        "import torch\n"
        "x = torch.tensor([100.0, 1.0], requires_grad=True)\n"
        "torch.exp(x).mean().backward()\n"
    )

    fixes = diagnosed_file(script, verify=True).findings[0].fixes
    bound = next(fix for fix in fixes if fix.patch and "clamp_max(20)" in fix.patch)

    assert fixes[0].verified is True and "clamp_max(10)" in str(fixes[0].patch)
    assert isinstance(bound.verdict, Holds) and isinstance(bound.verdict.but, HugeLoss)
    assert bound.verified is False


@pytest.mark.long
def test_a_wider_dtype_that_leaves_a_huge_loss_is_not_verified(tmp_path):
    script = tmp_path / "policy.py"
    script.write_text(
        "import torch\n"
        "raw = torch.tensor([0.0, -150.0], requires_grad=True)\n"
        "mean = torch.tensor([0.5, 0.2], requires_grad=True)\n"
        "def log_prob(mean, std, a):\n"
        "    z = (a - mean) / std\n"
        "    return (-0.5 * z.pow(2) - std.log()).sum()\n"
        "std = torch.nn.functional.softplus(raw)\n"
        "(-log_prob(mean, std, torch.ones(2))).backward()\n"
    )
    fixes = diagnosed_file(script, verify=True).findings[0].fixes
    held = {fix.kind: fix.verdict.but for fix in fixes if isinstance(fix.verdict, Holds)}

    assert isinstance(held["dtype"], HugeLoss | HugeElements)
    assert not any(fix.verified for fix in fixes)  # a spread of 1e-12 is none that a policy has


def test_nothing_is_tried_where_the_source_cannot_be_read(file):
    file.unlink()

    verdict = judged(HEALED).verdict

    assert verdict.reason is Reason.UNREADABLE and "loss.py" in verdict.detail


def test_a_program_that_cannot_be_run_with_the_patch(file):
    def broken(patches):
        raise GradscopeError("loss.py:2:1: invalid syntax")

    fix = judged(broken)

    assert fix.verdict == Refuted(CannotRun("loss.py:2:1: invalid syntax"))


# gradscope fix


def fixed(file, monkeypatch, **allowed):
    @in_its_own_dtype
    def run(patches, steps, limit):
        return HEALED if any("1.0)" in text for text in patches.values()) else BROKEN

    def diagnosis(trace, *limits):
        return (finding(trace),) if trace.symptoms else ()

    monkeypatch.setattr("gradscope.pipeline.diagnose", diagnosis)
    monkeypatch.setattr(
        "gradscope.repair.repaired.__kwdefaults__",
        {
            **repaired.__kwdefaults__,
            "diagnosis": diagnosis,
        },
    )
    return Rounds(run, policy(**{"write": True, "unsafe": False, **allowed})).made()


def test_fix_repeats_until_healthy_and_writes_once(file, monkeypatch):
    done = fixed(file, monkeypatch)
    assert TEXT == file.read_text()

    assert ("loss.py",) == write(done)

    assert "torch.where(x > 0, x, 1.0) ** 0.5" in file.read_text()
    assert ["ran your program once", "healthy after 1 round"] == list(summary(done))
    assert ["loss.py"] == [path.name for path in file.parent.iterdir()]


def test_fix_refuses_a_file_that_changed(file, monkeypatch):
    done = fixed(file, monkeypatch)
    file.write_text(TEXT + "# edited\n")

    with pytest.raises(GradscopeError, match="changed since it was read"):
        write(done)

    assert TEXT + "# edited\n" == file.read_text()
    assert ["loss.py"] == [path.name for path in file.parent.iterdir()]


def test_fix_keeps_line_ends_tabs_and_the_mark(file, monkeypatch):
    raw = ("\ufeff" + TEXT.replace("y =", "if 1:\n\ty =")).replace("\n", "\r\n").encode()
    file.write_bytes(raw)
    location = Location("loss.py", 3, 24, 3, 32, "<module>")
    monkeypatch.setattr(
        f"{__name__}.finding",
        lambda trace=BROKEN, kind="masked-branch": replace(
            _FINDING, location=location, symptoms=trace.symptoms
        ),
    )

    write(fixed(file, monkeypatch))

    new = raw.replace(b"x ** 0.5", b"torch.where(x > 0, x, 1.0) ** 0.5")
    assert new == file.read_bytes()


_FINDING = finding()


def test_a_written_fix_is_safe_unless_asked_otherwise():
    safe = Fix("masked-branch", "", "safe", edits=(Edit("f", 1, 0, 1, 0, ""),))
    safe = replace(safe, verdict=Verified(Effects()))
    moves = replace(safe, safety="unsafe")
    untried = replace(safe, verdict=NotTried(Reason.TIME))
    refuted = replace(safe, verdict=Refuted(GradientBreaks("x")))

    def allowed(**flags):
        may_apply = policy(**flags)
        return [may_apply(fix) for fix in (safe, moves, untried, refuted)]

    assert [True, False, False, False] == allowed(write=True, unsafe=False)
    assert [True, True, False, False] == allowed(write=False, unsafe=False)
    assert [True, True, True, False] == allowed(write=True, unsafe=True)
