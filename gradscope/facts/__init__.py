"""The facts that flow from the recorder to the report. Frozen, small, without torch.

A number that was measured is a Python float, NaN and inf included; only the JSON report turns
those into strings. Facts cross a process boundary, so everything here pickles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from gradscope.facts.functions import FunctionCheck as FunctionCheck
from gradscope.facts.hazards import Approach as Approach
from gradscope.facts.hazards import Headroom as Headroom
from gradscope.facts.hazards import Measured as Measured
from gradscope.facts.magnitudes import Absence as Absence
from gradscope.facts.magnitudes import Activation as Activation
from gradscope.facts.magnitudes import Depth as Depth
from gradscope.facts.magnitudes import Growth as Growth
from gradscope.facts.magnitudes import LateClip as LateClip
from gradscope.facts.magnitudes import LayerSize as LayerSize
from gradscope.facts.magnitudes import Leaf as Leaf
from gradscope.facts.magnitudes import Limits as Limits
from gradscope.facts.magnitudes import Magnitudes as Magnitudes
from gradscope.facts.magnitudes import Summed as Summed
from gradscope.facts.magnitudes import Update as Update
from gradscope.facts.places import Call as Call
from gradscope.facts.places import Location as Location
from gradscope.facts.symptoms import Symptom as Symptom


class Kind(StrEnum):
    """What an event does to non-finite values."""

    BIRTH = "birth"  # finite inputs, non-finite output
    PROPAGATION = "propagation"  # non-finite in, non-finite out
    KILL = "kill"  # non-finite in, finite out
    REVIVAL = "revival"  # finite grad_output, but a saved tensor holds what a kill had hidden
    MINTED = "minted"  # made from a Python constant: `masked_fill(mask, -inf)`
    SOURCE = "source"  # came into the program from outside: data, a parameter, a literal
    UNINITIALIZED = "uninitialized"  # read from memory that nothing had written


class Phase(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    DATA = "data"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Operand:
    """What was measured of one tensor (or number) that an op read or wrote.

    `role` is the name in the op's schema (`self`, `other`, `exponent`), `output`, or
    `grad_output`. `name` is the user's: a variable, an attribute or a parameter fqn. `at` is the
    value at the event's `index` (None where the shapes do not allow one). `min` and `max` are
    over the finite elements. `origin` is the id of the event that put bad values into it.
    `kin` says what holds it: "parameter", "buffer", "leaf", "constant", "data" or "".
    """

    role: str
    name: str | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    numel: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zeros: int = 0
    min: float | None = None
    max: float | None = None
    at: float | None = None
    origin: int | None = None
    kin: str = ""
    requires_grad: bool = False

    @property
    def bad(self) -> int:
        return self.nan + self.posinf + self.neginf


@dataclass(frozen=True, slots=True)
class Ancestor:
    """One node of the autograd graph above a call: how its operand was made, up to a few levels.

    `inputs` has one entry an input of the node, None where no gradient flows.
    """

    node: str
    call: Call | None
    inputs: tuple[Ancestor | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One op that took or gave a non-finite value.

    `call` is what ran: in backward, the op inside the node's formula. `blame` is the forward call
    to which it belongs: the call that made the running autograd node in backward, `call` itself
    in forward. `index` is the first bad element of the output that `bad`, `numel`, `rows`
    describe; `rows` are the first few distinct positions along dimension 0 that hold bad
    elements, `row_count` how many there are. `grad_output` is what came into the running node at
    that element. `sources` are the ids of the events whose bad values it read. `hidden_by` is the
    call that threw the value away going forward (where, indexing, ...), in backward events whose
    grad_output is exactly 0. `path` are the forward calls from this one to the loss, nearest first.
    """

    id: int
    step: int
    kind: Kind
    phase: Phase
    call: Call
    blame: Call
    node: str | None = None
    inputs: tuple[Operand, ...] = ()
    saved: tuple[Operand, ...] = ()  # the blamed call's own operands, named as in its schema
    output: Operand | None = None
    index: tuple[int, ...] = ()
    bad: int = 0
    numel: int = 0
    rows: tuple[int, ...] = ()
    row_count: int = 0
    grad_output: float | None = None
    sources: tuple[int, ...] = ()
    hidden_by: Call | None = None
    ancestry: tuple[Ancestor | None, ...] = ()
    path: tuple[Call, ...] = ()
    summed: tuple[Call, ...] = ()  # the forward calls whose gradients were added here
    scalars: tuple[tuple[str, object], ...] = ()  # non-tensor arguments: (schema name, value)

    @property
    def op(self) -> str:
        return self.blame.op

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The blamed call's operands. In backward they are what its node had saved: `inputs` are
        then the operands of one op inside the node's formula."""
        return self.saved if self.phase is Phase.BACKWARD and self.saved else self.inputs

    def operand(self, role: str) -> Operand | None:
        """The blamed call's operand of that schema name."""
        return next((operand for operand in self.operands if operand.role == role), None)

    def values(self) -> dict[str, float]:
        """The blamed call's operands at `index`: name in the schema -> value."""
        found = {name: value for name, value in self.scalars if isinstance(value, int | float)}
        found |= {operand.role: operand.at for operand in self.operands if operand.at is not None}
        return {name: float(value) for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """One backward pass and what followed it until the next. `loss` is the sum of its roots."""

    index: int
    loss: float | None
    seconds: float
    ops: int
    backward_at: Location | None = None


@dataclass(frozen=True, slots=True)
class Gradient:
    """A leaf's gradient after the backward of the last step, to compare two runs by.

    `norm` is the L2 norm of the finite elements, in float64. `digest` is a hash of all bytes.
    `sample` are the values at the flat positions `i * numel // len(sample)`, at most 1,024.
    """

    name: str
    shape: tuple[int, ...]
    numel: int
    bad: int
    norm: float
    digest: str
    sample: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How the traced program ended. `kind`: stopped (by us, at an error or at --steps), finished,
    raised, exited, interrupted, died; and in a check unusable (it could not be run at all), hung,
    fault (gradscope itself failed). `detail` is one line, `traceback` the user's frames."""

    kind: str
    detail: str = ""
    code: int | None = None
    traceback: str = ""
    location: Location | None = None


FAILURES = ("raised", "died", "unusable", "hung", "fault")


@dataclass(frozen=True, slots=True)
class Environment:
    torch: str = ""
    python: str = ""
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that one run showed."""

    target: str
    events: tuple[Event, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    steps: tuple[Step, ...] = ()
    ending: Ending = Ending("finished")
    environment: Environment = Environment()
    ops: int = 0
    notes: tuple[str, ...] = ()  # what could not be observed, one sentence each
    gradients: tuple[Gradient, ...] = ()  # of the last step, in the order of the leaves' first use
    magnitudes: Magnitudes | None = None  # None where nobody measured them
    functions: tuple[FunctionCheck, ...] = ()  # every custom Function that was looked at
    hidden: tuple[Event, ...] = ()  # births on the way to a loss that a mask hid, and no symptom
    approaches: tuple[Approach, ...] = ()  # of operands to singular points, nearest first
    headroom: tuple[Headroom, ...] = ()  # half precision near its ends, worst first
    elsewhere: tuple[str, ...] = ()  # names of other threads that ran backward: not observed

    def event(self, id: int) -> Event | None:
        return next((event for event in self.events if event.id == id), None)


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
    the repair is advice. `verified` is True, False (tried, refuted) or None (not tried), and
    `verdict` says what was compared or why it was not tried. `safety`: safe (same values), unsafe
    (values or training change), display-only (a direction).
    """

    kind: str
    title: str
    safety: str = "display-only"
    code: str = ""  # the repaired expression or a few lines, for people
    edits: tuple[Edit, ...] = ()
    patch: str | None = None
    verified: bool | None = None
    verdict: str = "not tried"


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that belongs to a finding. `role`: mask, birth, kill, call, inner, use."""

    role: str
    location: Location
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One root cause, with every symptom that it explains."""

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
    evidence: dict[str, object] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()  # measured numbers, as phrases for the report
    tensors: tuple[Operand, ...] = ()  # the tensors at the culprit
    chain: tuple[Event, ...] = ()  # from the birth to the symptom
    symptoms: tuple[Symptom, ...] = ()
    fixes: tuple[Fix, ...] = ()
    confidence: float = 0.5  # ranks rules that explain the same root


@dataclass(frozen=True, slots=True)
class Report:
    target: str
    trace: Trace
    findings: tuple[Finding, ...] = ()
    said: tuple[str, ...] = ()  # one-line remarks above the report: "no target given, ..."
    accepted: int = 0  # findings left out, which a comment or a baseline accepts

    @property
    def verdict(self) -> str:
        if any(finding.severity is Severity.ERROR for finding in self.findings):
            return "unhealthy"
        ending = self.trace.ending
        failed = ending.kind in FAILURES or (ending.kind == "exited" and ending.code)
        return "failed" if failed else "healthy"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a check of several targets found. `findings` are about the check as a whole."""

    reports: tuple[Report, ...]
    findings: tuple[Finding, ...] = ()
    said: tuple[str, ...] = ()

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Those of every target, errors first, targets in their order."""
        found = [finding for report in self.reports for finding in report.findings]
        ranks = list(Severity)
        return tuple(
            sorted((*found, *self.findings), key=lambda finding: ranks.index(finding.severity))
        )

    @property
    def verdict(self) -> str:
        verdicts = {report.verdict for report in self.reports}
        return next((word for word in ("unhealthy", "failed") if word in verdicts), "healthy")


def text_of(value: object, digits: int = 6) -> str:
    """A number as people and the JSON contract write it: "inf", "-inf", "nan", "0.0105"."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return f"{value:.{digits}g}"
    return str(value)
