"""The ranking of findings: it names causes that exist, and has a place for one that it does not."""

from dataclasses import replace

from gradscope.facts import Finding, Phase, Severity, Strength, Subject, Symptom, Trouble
from gradscope.rules import RULES, order

NAMES = {rule.name for rule in RULES.values()}


def finding(name: str, step: int = 0, strength: Strength = Strength.LIKELY) -> Finding:
    error, backward = Severity.ERROR, Phase.BACKWARD
    return Finding(
        "GS199", name, error, backward, step, "mul", f"{name} here", "why", strength=strength
    )


def test_it_names_causes():
    listed = {*order.ORDER, *order.CONSEQUENCES, *order.REASONS}
    listed |= {name for names in order.CONSEQUENCES.values() for name in names}
    listed |= {name for names in order.REASONS.values() for name in names}

    assert listed <= NAMES
    assert len(set(order.ORDER)) == len(order.ORDER)


def test_a_cause_that_it_does_not_name_wins_over_a_fallback_alone():
    new = finding("left-turn")
    rest = [finding(name) for name in order.ORDER]
    fallback = finding(order.ORDER[0], strength=Strength.FALLBACK)

    assert sorted([fallback, new, *rest], key=order.rank) == [*rest, new, fallback]


def test_what_is_proven_comes_first():
    proven = finding(order.ORDER[-1], strength=Strength.PROVEN)

    assert min([finding(order.ORDER[0]), proven], key=order.rank) is proven


def test_a_later_overflow_is_put_down_to_the_gradient_that_explodes():
    cause, other = finding("exploding-gradient"), finding("zero-division", 2)

    left = order.without_consequences([cause, other, finding("overflow", 1)])

    assert [one.name for one in left] == ["exploding-gradient", "zero-division"]
    assert left[0].numbers == ("overflow follows at step 1: overflow here",)


def test_every_later_error_is_put_down_to_a_wrong_gradient():
    wrong = Symptom(Trouble.WRONG, Subject.GRADIENT, 1, "x")
    cause = replace(finding("bad-custom-backward", 1), symptoms=(wrong,))

    left = order.without_consequences([finding("log-zero"), cause, finding("left-turn", 2)])

    assert [one.name for one in left] == ["log-zero", "bad-custom-backward"]


def test_clipping_that_came_too_late_leads_where_steps_overshoot():
    late, diverges, other = map(finding, ("misplaced-clipping", "diverging-training", "log-zero"))

    assert order.with_reasons_first((diverges, other, late)) == (late, diverges, other)
    assert order.with_reasons_first((other, diverges, late)) == (other, diverges, late)
