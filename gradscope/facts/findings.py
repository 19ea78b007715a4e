"""What is concluded of a run: roots, findings, and the repairs that they propose."""

from dataclasses import field
from enum import StrEnum

from gradscope.dataclass import dataclass
from gradscope.facts.events import Event, Operand, Phase, Symptom
from gradscope.facts.places import Location
from gradscope.facts.requests import Request
from gradscope.facts.verdicts import UNTRIED, NotTried, Verdict, Verified


class Ranking(StrEnum):
    """What has its most important member first."""

    @property
    def rank(self) -> int:
        """0 for the first."""
        return list(type(self)).index(self)


class Severity(Ranking):
    """How grave a finding is: an error has broken a gradient or the training, a warning has not
    hurt yet, a note is told beside them."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Strength(Ranking):
    """How good an explanation of its root a finding is."""

    PROVEN = "proven"  # the whole way from the cause to the root was recorded
    LIKELY = "likely"  # the cause is known to lead there
    FALLBACK = "fallback"  # what remains where no other cause is found


@dataclass(frozen=True, slots=True)
class Root:
    """A root event, the symptoms that it explains, and the events from it to the first of them.

    `also` are further calls of the same op on the same line that broke in the same way.
    """

    event: Event
    symptoms: tuple[Symptom, ...] = ()
    chain: tuple[Event, ...] = ()
    also: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of a span (as in `Location`) in one file."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair that a rule proposes, and what became of trying it.

    `kind` is a family of design (masked-branch, epsilon, clip-norm, ...). `edits` is empty where
    the repair is advice. `safety`: safe (same values), unsafe (values or training change),
    display-only (a direction). `request` is what the rule asks for, where its kind and its place
    alone do not tell how to write it.
    """

    kind: str
    title: str
    safety: str = "display-only"
    code: str = ""  # the repaired expression or a few lines, for people
    edits: tuple[Edit, ...] = ()
    patch: str | None = None
    verdict: Verdict = UNTRIED
    request: Request | None = None

    @property
    def verified(self) -> bool | None:
        """True, False (tried, and refuted or not good) or None (not tried)."""
        return None if isinstance(self.verdict, NotTried) else isinstance(self.verdict, Verified)


@dataclass(frozen=True, slots=True)
class Related:
    """Another place of a finding. `role`: mask, birth, branch, kill, call, inner, use."""

    role: str
    location: Location
    message: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The operands of the culprit at its first bad element, by schema name and without settings,
    and the dtype in which they were read. `autocast`: inside of a block of `torch.autocast`."""

    values: tuple[tuple[str, float], ...] = ()
    dtype: str | None = None
    autocast: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One root cause, with every symptom that it explains.

    `rule` is the code ("GS101") and `name` the cause; `step` numbers the backward passes from 0.
    `location` is the place in the user's source: lines from 1, columns in characters from 0; None
    where it is nowhere. `evidence` is for reading: its keys are those of the JSON report.
    """

    rule: str
    name: str
    severity: Severity
    phase: Phase
    step: int
    op: str
    message: str  # the headline: what, with counts, no advice
    why: str  # the mechanism, two or three sentences
    label: str = ""  # a few words under the carets
    node: str | None = None
    location: Location | None = None
    related: tuple[Related, ...] = ()
    evidence: dict[str, object] = field(default_factory=dict)  # for the JSON report alone
    measured: Measured = Measured()
    numbers: tuple[str, ...] = ()  # measured numbers, as phrases for the report
    tensors: tuple[Operand, ...] = ()  # the tensors at the culprit
    chain: tuple[Event, ...] = ()  # from the birth to the symptom
    symptoms: tuple[Symptom, ...] = ()
    fixes: tuple[Fix, ...] = ()
    strength: Strength = Strength.LIKELY
