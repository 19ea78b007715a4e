"""The ranking: which cause is reported where several explain one root, and which finding is put
down to another. Causes that are not named here come after those that are, in the order of their
codes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gradscope.facts import Finding, Phase, Severity, Trouble

# Among explanations of the same strength the first one here wins.
ORDER = (
    "backward-refused",  # it has ended the program
    "bad-setting",  # of the optimizer, before what it computes from it
    "all-masked-softmax",  # before the 0 / 0 and the inf - inf that such a row consists of
    "bad-custom-backward",  # before what comes of the steps along a wrong gradient
    "degenerate-decomposition",  # it has no derivative, with a mask behind it or without
    "diverging-training",  # before the op in which the growth of the loss ends
    "exploding-gradient",
    "huge-gradient",
    "empty-reduction",
    "rounded-bound",  # before the op that breaks where it was to bound, with a mask or without
    "masked-branch",
    "bad-input",  # before the op that computes with it
    "misplaced-clipping",
    "underflow",  # before the division by, or the logarithm of, what was flushed to 0
    "inf-arithmetic",  # an inf that came in, before one that is new
    "overflow",
    "singular-derivative",
    "domain-error",
    "vanishing-gradient",
    "dead-gradient",  # the far end of what vanishes
    "lost-update",
)

# What values that have become too large do in the steps after.
CONSEQUENCES = {
    "exploding-gradient": frozenset(
        ("overflow", "inf-arithmetic", "diverging-training", "exploding-gradient")
    )
}
CONSEQUENCES["huge-gradient"] = CONSEQUENCES["exploding-gradient"] | {"huge-gradient"}

# Errors that come before the finding that leads: steps that were to be bounded, and were not, are
# why they overshoot, one step along a huge gradient is why the loss leaps, a likelihood of
# scores has no least, and a bound that a target lies beyond, and a value that is normalised by
# itself, is where there is no slope, and what a module never ran with gets none. What never gets a
# gradient stays behind what follows it.
REASONS = {
    "misplaced-clipping": frozenset(("diverging-training", "exploding-gradient")),
    "huge-gradient": frozenset(("diverging-training",)),
    "wrong-scores": frozenset(("diverging-training",)),
    "unreached-target": frozenset(("dead-gradient",)),
    "unknown-names": frozenset(("dead-gradient", "lost-update")),
    "empty-reduction": frozenset(("dead-gradient",)),
    "dead-gradient": frozenset(("diverging-training",)),
}

_PLACES = {name: place for place, name in enumerate(ORDER)}


def rank(finding: Finding) -> tuple[int, int]:
    """Smaller for a finding that comes first."""
    return finding.strength.rank, _PLACES.get(finding.name, len(ORDER))


def is_wrong_gradient(finding: Finding) -> bool:
    """Whether a finding is about a gradient that is wrong where it is computed."""
    return finding.severity is Severity.ERROR and any(
        symptom.trouble is Trouble.WRONG for symptom in finding.symptoms
    )


def consequence(cause: Finding, finding: Finding) -> Finding:
    """A wrong gradient, or one that explodes, with what came of the steps taken along it."""
    follows = f"{finding.name} follows at step {finding.step}: {finding.message}"
    new = tuple(symptom for symptom in finding.symptoms if symptom not in cause.symptoms)
    return replace(cause, symptoms=cause.symptoms + new, numbers=(*cause.numbers, follows))


def without_consequences(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """After a step along a wrong gradient every later failure is put down to it; after one along a
    gradient that explodes, those in which values have become too large."""
    found = tuple(found)
    for is_cause in (is_wrong_gradient, _has_consequences):
        cause = min(filter(is_cause, found), key=lambda finding: finding.step, default=None)
        if cause is not None:
            found = tuple(_put_down_to(cause, found))
    return found


def with_reasons_first(ranked: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with those first that are the reason for the one that leads."""
    first = [
        finding
        for finding in ranked
        if finding.severity is Severity.ERROR
        and ranked[0].name in REASONS.get(finding.name, frozenset())
        and not _may_follow(finding)
    ]
    return (*first, *(finding for finding in ranked if finding not in first))


def _may_follow(finding: Finding) -> bool:
    """Whether it may as well come of what leads: a slope is 0 where values have been thrown to."""
    flat = (one.trouble is Trouble.ZERO for one in finding.symptoms)
    return finding.name == "dead-gradient" and any(flat)


def _has_consequences(finding: Finding) -> bool:
    is_error = finding.severity is Severity.ERROR and finding.phase is Phase.BACKWARD
    return is_error and finding.name in CONSEQUENCES


def _follows(finding: Finding, cause: Finding) -> bool:
    if finding.step <= cause.step or finding.severity is Severity.NOTE:
        return False
    if is_wrong_gradient(finding):
        return False
    of_size = CONSEQUENCES.get(cause.name, frozenset())
    return is_wrong_gradient(cause) or finding.name in of_size


def _put_down_to(cause: Finding, found: tuple[Finding, ...]) -> Iterator[Finding]:
    later = [finding for finding in found if _follows(finding, cause)]
    for finding in found:
        if finding is cause:
            for one in sorted(later, key=lambda other: other.step)[:1]:
                finding = consequence(finding, one)
            yield finding
        elif finding not in later:
            yield finding
