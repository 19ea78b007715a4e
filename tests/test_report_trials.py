"""The sentences about a fix that was tried, or was not."""

import json
from typing import Any, get_args

import pytest

from gradscope.config import Config
from gradscope.facts import (
    CannotRun,
    Cause,
    CauseAppears,
    CauseRemains,
    Change,
    Effect,
    EffectKind,
    Effects,
    Fix,
    Follows,
    GradientBreaks,
    GradientMove,
    Holds,
    HugeElements,
    HugeGradient,
    HugeLoss,
    LossMove,
    NothingToLearn,
    NotTried,
    NumberDecides,
    Objection,
    OffTruth,
    ProgramEnds,
    Reason,
    Refuted,
    Subject,
    Symptom,
    SymptomAppears,
    SymptomRemains,
    Trouble,
    Truth,
    Unchanged,
    ValuesMove,
    Verdict,
    Verified,
)
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.report import Options, by_name, trials

NAN = Symptom(Trouble.NAN, Subject.GRADIENT, 0, "x", 2, 5)
ROOT = Cause("GS102", "singular-derivative", 7)

OBJECTIONS = {
    CauseRemains(ROOT): "GS102 singular-derivative at line 7 is there all the same",
    CauseAppears(Cause("GS202", "log-zero")): "GS202 log-zero breaks then",
    SymptomRemains(NAN, ROOT): (
        "`x.grad` is NaN all the same, from GS102 singular-derivative at line 7"
    ),
    SymptomAppears(NAN): "`x.grad` is NaN then, which is new",
    GradientBreaks("x"): "the gradient of `x` is no longer finite where it was",
    ValuesMove(LossMove(3, 0.5)): "the loss of step 3 moves by 0.5, which this fix must not do",
    ProgramEnds("ValueError: no"): "the program then ends with ValueError: no",
    CannotRun("no such file"): "the program cannot be run then (no such file)",
}


def fix(verdict: Verdict) -> Fix:
    return Fix("epsilon", "a fix", verdict=verdict)


@pytest.mark.parametrize(("by", "words"), OBJECTIONS.items())
def test_each_objection_has_its_sentence(by, words):
    assert trials.verdict(fix(Refuted(by))) == f"refuted: {words}"
    assert trials.sentence(fix(Refuted(by))) == words


def test_no_objection_is_forgotten():
    assert {type(by) for by in OBJECTIONS} == set(get_args(Objection))


@pytest.mark.parametrize("reason", [one for one in Reason if one is not Reason.NOT_ASKED])
def test_each_reason_has_words(reason):
    effect = Effect(EffectKind.CONNECTION, "host:80", 0) if reason is Reason.OUTSIDE else None
    verdict = NotTried(reason, "SIGKILL", effect=effect)

    words = trials.verdict(fix(verdict))

    assert words.startswith("not tried: ") and words == trials.sentence(fix(verdict))


def test_a_fix_that_nobody_asked_to_try_gives_no_reason():
    assert trials.verdict(Fix("epsilon", "a fix")) == "not tried"


PROGRAM = """
import torch
x = torch.tensor([0.0, 4.0], requires_grad=True)
w = torch.tensor([0.0, 1.0], requires_grad=True)
loss = torch.where(x > 0, x ** 0.5, 0.0).sum() + (w / w.detach()).sum()
loss.backward()
"""


@pytest.mark.long
def test_no_stage_reads_the_words(tmp_path, monkeypatch):
    """With every sentence reworded, the report differs in nothing else."""
    file = tmp_path / "loss.py"
    file.write_text(PROGRAM)

    def fixes() -> list[Any]:
        report = trace(parse_target(str(file)), Config(), silent=True)
        found = json.loads(by_name("json").render(report, Options()))["findings"]
        return [one["fixes"] for one in found]

    def without_words(found: list[Any]) -> list[Any]:
        return [[{**fix, "verdict": ""} for fix in one] for one in found]

    plain = fixes()
    monkeypatch.setattr(trials, "trial_words", lambda fix: ("?", "?"))
    reworded = fixes()

    assert True in {fix["verified"] for one in plain for fix in one}
    assert plain != reworded
    assert without_words(plain) == without_words(reworded)


def test_effects_are_told_in_one_order():
    effects = Effects(
        Change(NAN, others=2),
        loss=(float("inf"), 1e9),
        gradient_norm=0.5,
        unchanged=Unchanged(3, all_of_them=False),
        moves=(LossMove(0, 0.25), GradientMove("x", None)),
        remains=ROOT,
        truth=Truth(0.5, 2.0, is_met=False),
    )
    assert trials.sentence(fix(Verified(effects))) == (
        "bad elements of `x` 2 -> 0 (and 2 more tensors), "
        "loss inf -> 1e+09, gradient norm 0.5, "
        "the other 3 gradient elements unchanged, the loss of step 0 moves by 0.25, "
        "finite gradients move, `x` most, "
        "in float64 the loss is 0.5 and the gradient norm 2, "
        "what remains is GS102 singular-derivative at line 7"
    )


def test_gradients_that_differ_by_rounding_alone_are_no_move():
    effects = Effects(loss=(float("nan"), 0.49), moves=(GradientMove("x", 1e-7),))
    assert trials.sentence(fix(Verified(effects))) == (
        "loss NaN -> 0.49, finite gradients differ by rounding"
    )


def test_a_form_that_is_right_in_float64_alone_is_told_with_what_float64_gives():
    effects = Effects(loss=(float("nan"), 0.49), truth=Truth(0.5, 2.0, is_met=True, rounds=True))
    assert trials.sentence(fix(Verified(effects))).endswith(
        "in float64 the loss is 0.5 and the gradient norm 2, with and without the fix"
    )


@pytest.mark.parametrize(
    ("but", "words"),
    [
        (HugeLoss(None), "that is a huge loss"),
        (HugeLoss(2.5), "that is a huge loss, which is about 2.5 otherwise"),
        (HugeGradient(2.0), "that is a huge gradient, whose norm was 2 at most before"),
        (HugeElements("x", 1e7), "the gradient of `x` is 1e+07 times the others where it was not"),
        (NothingToLearn(), "every gradient is exactly 0 then"),
        (OffTruth(), "the true values are others"),
        (NumberDecides(2.5), "the number that it writes makes the loss: another one gives 2.5"),
        (Follows(3, ROOT), "GS102 singular-derivative at line 7 follows at step 3"),
        (Follows(3, loss=1e6), "the loss is 1e+06 at step 3"),
        (Follows(3, norm=1e6), "the gradient norm is 1e+06 at step 3"),
    ],
)
def test_a_fix_that_is_not_good_says_why_first(but, words):
    one = fix(Holds(Effects(loss=(float("inf"), 1e9)), but))

    assert trials.sentence(one) == trials.verdict(one)
    assert trials.verdict(one).startswith(f"holds, but {words}")
    assert trials.verdict(one).endswith(", loss inf -> 1e+09")
    assert one.verified is False


@pytest.mark.parametrize(
    ("bounded", "became"), [(True, "is bounded"), (False, "no longer explodes")]
)
def test_a_symptom_without_bad_elements_is_told_by_what_it_became(bounded, became):
    change = Change(Symptom(Trouble.EXPLODING, Subject.GRADIENT, 0, "w"), bounded=bounded)

    words = trials.sentence(fix(Verified(Effects(change))))
    assert words == f"`w.grad` {became}"
