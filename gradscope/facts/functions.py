"""What was found of a custom autograd.Function."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.places import Location
from gradscope.facts.symptoms import Subject, Symptom, Trouble


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


Detail = str | SavedInstead | Compared | TensorFactor


@dataclass(frozen=True, slots=True)
class FunctionCheck:
    """A custom autograd.Function's backward against the derivative of its forward, for one input.

    `verdict`: right, wrong, intended (a straight-through estimator, a gradient reversal, or said
    so by the author: `reason`) or unknown (`reason` says why). `relations` tell how a wrong
    gradient relates to the right one, the outermost first:

    - none (None was returned), count, shape, unsummed, non-finite, nondeterministic
    - surrogate (the forward is locally constant), identity (it passes its input on), bounded
    - ignored (grad_output), number (of grad_output only one number is used), zero, sign, factor,
      mean, transposed, swapped, extra, missing (a factor), saved (the wrong tensor)
    - approximate, some (elements), unknown

    `factor` is what the gradient is too large by, `factor_name` what that number, or one over
    it, is; `detail` belongs to the last relation. `got` and `right` are the numbers at `index`,
    the worst element, or along a random direction where no single element was measured: `truth`
    says how `right` was found. `location` is the expression in backward that computed the
    gradient, `op` the aten op that did. `rewrite` is a template for the repair, as
    repair/backward.py reads it. `epsilon` is the relative step of the differences. `calls`
    counts forward and backward calls.
    """

    name: str
    verdict: str
    step: int = 0
    input: str = ""
    position: int = 0
    relations: tuple[str, ...] = ()
    factor: float | None = None
    factor_name: str = ""
    detail: Detail = ""
    call: Location | None = None
    location: Location | None = None
    forward: Location | None = None
    op: str = ""
    node: str = ""
    shape: tuple[int, ...] = ()
    bad: int = 0
    numel: int = 0
    index: tuple[int, ...] = ()
    at: float | None = None  # the input's value at `index`
    got: float | None = None
    right: float | None = None
    truth: str = ""
    dtype: str = ""
    epsilon: float = 0.0
    tolerance: float = 0.0
    rewrite: str | None = None
    reason: str = ""
    calls: int = 0

    @property
    def symptom(self) -> Symptom:
        return Symptom(
            Trouble.WRONG, Subject.GRADIENT, self.step, self.input, self.bad, self.numel, self.index
        )
