"""What was found of a custom autograd.Function."""

from gradscope.dataclass import dataclass
from gradscope.facts.events import Subject, Symptom, Trouble
from gradscope.facts.places import Location


@dataclass(frozen=True, slots=True)
class SavedInstead:
    """`save_for_backward` was given the tensor `was` where `needed` is: what has that name, or the
    output."""

    was: str
    needed: str
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """Elements by the value of a tensor: `name > bound`, or `|name| > bound`. `sign`: < > or =."""

    name: str
    sign: str
    bound: float
    absolute: bool = False

    @property
    def is_name(self) -> bool:
        """Whether the tensor itself is compared, and has a name of its own in the source."""
        return self.name.isidentifier() and not self.absolute


@dataclass(frozen=True, slots=True)
class TensorFactor:
    """A factor that is a function of a tensor: a form with {} for its name."""

    form: str
    name: str


@dataclass(frozen=True, slots=True)
class Slip:
    """`text` in the place of what is `at` a part of the expression (or the statement) at
    `location`, which reads `written` then, makes a gradient right."""

    location: Location
    written: str
    at: Location
    text: str

    @property
    def is_missing(self) -> bool:
        """Whether it is a line of its own, before the statement at `location`."""
        return "\n" in self.text


Detail = str | SavedInstead | Compared | TensorFactor


@dataclass(frozen=True, slots=True)
class Relation:
    """How a gradient relates to the right one. `kinds`, the outermost first:

    - none (None was returned), count, shape, unsummed, non-finite, nondeterministic
    - surrogate (the forward is locally constant), identity (it passes its input on), bounded,
      rounded (what the forward has made few values of is taken for the input)
    - ignored (grad_output), partly (at some elements), added (to it), number (of it only one is
      used), zero, sign, factor, mean, transposed, swapped, extra, missing (a factor), saved (the
      wrong tensor)
    - approximate, some (elements), unknown

    `factor` is what the gradient is too large by; `detail` belongs to the last kind: a tensor, a
    condition.
    """

    kinds: tuple[str, ...] = ()
    factor: float | None = None
    detail: Detail = ""

    @property
    def last(self) -> str:
        return self.kinds[-1] if self.kinds else ""


@dataclass(frozen=True, slots=True)
class Worst:
    """What backward gave and what is right at `index`, the worst element, where the input is `at`;
    without an index along a random direction, where no single element was measured."""

    got: float
    right: float
    index: tuple[int, ...] = ()
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a gradient was compared: in which dtype, with how many forward and backward calls, with
    what as the right one (`truth`, in words; `by_autograd`: it went through forward), by
    differences of which relative step, and to which relative tolerance."""

    dtype: str = ""
    calls: int = 0
    truth: str = ""
    by_autograd: bool = False
    step: float = 0.0
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class FunctionCheck:
    """A custom autograd.Function's backward against the derivative of its forward, for one input.

    `verdict`: right, wrong, raises (before it returns anything), intended (a straight-through
    estimator, a gradient reversal, or said so by the author: `reason`), latent (wrong, but for a
    grad_output of ones, and no other came in) or unknown (`reason` says why). `bad` of the
    gradient's `numel` elements are wrong. `factor_name` is what the relation's factor, or one over
    it, is; `rewrite` is a template for the repair, as in `Rewrite`, and `slips` are what else would
    repair it. The Function was called at `call`, its forward ends at `forward`, and `location` is
    the expression in backward that computed the gradient, by the aten op `op`.
    """

    name: str
    verdict: str
    step: int = 0
    input: str = ""
    position: int = 0
    bad: int = 0
    numel: int = 0
    relation: Relation = Relation()
    factor_name: str = ""
    rewrite: str | None = None
    slips: tuple[Slip, ...] = ()
    worst: Worst | None = None
    compared: Comparison = Comparison()
    call: Location | None = None
    location: Location | None = None
    forward: Location | None = None
    op: str = ""
    node: str = ""
    reason: str = ""

    @property
    def holds_for_ones(self) -> bool:
        return self.relation == Relation(("ignored",))

    @property
    def symptom(self) -> Symptom:
        index = self.worst.index if self.worst is not None else ()
        return Symptom(
            Trouble.WRONG, Subject.GRADIENT, self.step, self.input, self.bad, self.numel, index
        )


@dataclass(frozen=True, slots=True)
class Redraw:
    """Parts of the forward pass that backward has run again, where an op has drawn from another
    state of the generator, of that `device`, than in forward. `places`: where each is run again,
    and where it was called in forward. `own`: a backward of the program's does so, and no
    `checkpoint`, whose call both places are then."""

    op: str
    step: int
    places: tuple[tuple[Location | None, Location | None], ...]
    own: bool
    device: str
