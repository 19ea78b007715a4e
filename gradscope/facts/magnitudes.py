"""How large gradients were over a run: measured by the recorder, judged by the rules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from gradscope.dataclass import dataclass
from gradscope.facts.compared import Oversized
from gradscope.facts.events import Leap, Subject, Symptom, Trouble
from gradscope.facts.modes import ModuleUse, OwnBackward
from gradscope.facts.places import Call, Location, Zeroed
from gradscope.facts.usage import Reload, ScaledUpdate, Undoing, UnreadFlag, UnscaledPass, Usage


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf and the L2 norm of its gradient after each backward pass: None where it had none,
    or at a later step that nobody measured.

    `held_as`: parameter or leaf. `trained`: an optimizer that stepped holds it. `weight` is the
    norm of the leaf's own values when it was last seen, `start` when it was first seen. `owner` is
    the module that holds it, "" where none does. `remade`: passes at which it was another parameter
    than at the one before. `shard` is the part of it that was measured, None of what is whole.
    `training`: its module was in train mode when it was first seen. `held`: something that the
    user's code can reach after the pass holds it, and its name is from there. `lost_at` is where
    its next values are computed, and given to a name alone; `replaced_at` where a module was last
    given another parameter in its place. `uniform`: it is no parameter, and held one number when it
    was first seen, as what has to learn may, and data does not; nor was its gradient handed out.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    numel: int
    held_as: str
    trained: bool
    weight: float
    norms: tuple[float | None, ...]
    start: float = 0.0
    owner: str = ""
    remade: int = 0
    shard: tuple[int, ...] | None = None
    training: bool = True
    held: bool = True
    lost_at: Location | None = None
    replaced_at: Location | None = None
    uniform: bool = False
    zeroed: Zeroed | None = None  # where it is 0 everywhere

    @property
    def known(self) -> tuple[float, ...]:
        return tuple(norm for norm in self.norms if norm is not None)

    @property
    def stays(self) -> bool:
        """Whether most passes met the parameter that the one before had met."""
        return len(self.known) - 1 > 2 * self.remade


@dataclass(frozen=True, slots=True)
class Growth:
    """How the gradient's norm changes from the loss towards the input, at one step.

    `norms` has one entry for each repeat of the same computation: the L2 norm of dL/dh, nearest
    to the loss first. `axis` is "time" where one module repeats, "depth" where several do.
    `factor` is the fitted change for each repeat, `low` and `high` the smallest and largest seen.
    `call` is the op that accounts for most of the change, at the repeat where it does.
    `activations` are the L2 norms of h itself at the same places (empty where the forward pass was
    not watched), `activation_factor` their fitted change for each repeat, in the same direction.
    `nodes` are the kinds of autograd nodes that lie between the first repeat and the last.
    """

    step: int
    axis: str
    call: Call
    norms: tuple[float, ...]
    factor: float
    low: float
    high: float
    activations: tuple[float, ...] = ()
    activation_factor: float | None = None
    nodes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """What a repeat is called: "layer" or "time step"."""
        return "layer" if self.axis == "depth" else "time step"

    @property
    def total(self) -> float:
        """The last norm over the first."""
        return self.norms[-1] / self.norms[0] if self.norms[0] else math.inf


@dataclass(frozen=True, slots=True)
class Activation:
    """The L2 norm of the result of an op, of `numel` elements."""

    norm: float
    numel: int

    @property
    def rms(self) -> float:
        """The size of an element, which layers of different widths can be compared by."""
        return self.norm / math.sqrt(self.numel) if self.numel else 0.0


@dataclass(frozen=True, slots=True)
class LayerSize:
    """The last result h of one layer in one forward pass, and the L2 norm of dL/dh (None where no
    gradient came to it). `layer` is the module's name, or file:line for an op outside of all
    modules (`in_module` is False); `op` gave the result."""

    layer: str
    op: str
    activation: Activation
    gradient: float | None
    in_module: bool = True


@dataclass(frozen=True, slots=True)
class Depth:
    """The layers in the order of the forward pass, at one step."""

    step: int
    layers: tuple[LayerSize, ...]


class NoGradient(StrEnum):
    """Why the gradient of a leaf is missing, or exactly 0."""

    DETACH = "detach"
    NO_GRAD = "no_grad"
    INFERENCE = "inference_mode"
    FUNCTION = "function"  # its backward returns None
    CHECKPOINT = "checkpoint"  # a reentrant one, of whose inputs none requires grad
    CONSTANT = "constant"  # a gradient that was asked for without its graph
    FROZEN = "frozen"  # nothing that the program computed with requires grad
    LATE = "late"  # it was read before `requires_grad` was set
    LEAFLESS = "leafless"  # nor is there a leaf that could
    SAMPLED = "sampled"
    STRAIGHT_THROUGH = "straight-through"  # a detach of what was to hand the gradient on
    INTEGER = "integer"
    NUMBER = "number"  # of Python
    REWRAPPED = "rewrapped"  # as a Parameter
    OVERWRITTEN = "overwritten"
    UNUSED = "unused"
    UNREACHED = "unreached"  # read, and what is made of it does not reach the loss
    DIFFERENTIATED = "differentiated"  # only derivatives were read of what it is in
    UNREGISTERED = "unregistered"
    STALE = "stale"  # the optimizer holds what the model has no longer
    REPLACED = "replaced"
    SWAPPED = "swapped"  # by a forward, once an optimizer had been given the first one
    ADDED = "added"  # to a model that the optimizer had been given
    REMADE = "remade"  # at each pass
    PASSING = "passing"  # the same, and nobody holds it when backward runs
    ZERO_OP = "zero-op"  # round, sign
    PIECEWISE_LINEAR = "piecewise-linear"  # the derivative of a rectifier's slope
    NEAREST = "nearest"  # an interpolation that chooses
    SATURATED = "saturated"
    SINGLE = "single"  # a softmax over one element
    DEAD_RELU = "dead-relu"
    UNDERFLOW = "underflow"
    ZERO_WEIGHT = "zero-weight"
    ZERO_VALUE = "zero-value"  # of a square
    ITSELF = "itself"  # which it is subtracted from
    BY_INF = "by-inf"  # a division, as by the variance of a normalisation
    MASKED = "masked"
    LEFT_OUT = "left-out"  # by numbers or a slice that are the same at every step
    CANCELLED = "cancelled"  # a sum of what is not 0
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Absence:
    """A leaf whose gradient was missing or exactly zero at every step, or at all that one optimizer
    follows that holds it, and the reason found. `call` is where the gradient ended, `grad_output`
    the norm that came into it, None where none came. Of what an optimizer made at `made` holds, and
    that was replaced: `replaced_by` are the user's lines, innermost first, of each place that may
    have put another one there."""

    leaf: str
    missing: bool
    reason: NoGradient
    trained: bool
    step: int
    call: Call | None = None
    node: str | None = None
    location: Location | None = None
    related: Location | None = None
    grad_output: float | None = None
    siblings: bool = False  # others of the same ModuleList, or of a maximum, were used
    through: tuple[str, ...] = ()  # what others have computed with a sample that was asked for
    packaged: bool = False  # a part of a module that an installed package wrote: a BERT's pooler
    shape: tuple[int, ...] = ()
    dims: tuple[int, ...] = ()  # of a softmax over one: those that hold several, but for the first
    nearer: bool = False  # of two factors, the one nearer to the input
    ends: bool = False  # a rectifier: no parameter is read between its result and the loss
    put_at: Location | None = None  # and where it was put behind the last layer of a Sequential
    built_at: Location | None = None  # or where a helper was asked to build that
    # The first and the last of the steps of one optimizer, where the steps of others train it.
    among: tuple[int, int] | None = None
    made: Location | None = None
    replaced_by: tuple[tuple[Location, ...], ...] = ()

    @property
    def symptom(self) -> Symptom:
        trouble = Trouble.NONE if self.missing else Trouble.ZERO
        return Symptom(trouble, Subject.GRADIENT, self.step, self.leaf)


@dataclass(frozen=True, slots=True)
class Clearing:
    """Lines that clear the gradients of earlier steps, with the names that the program has at
    `location`: the call of a backward, before which they belong, or `after` it that of a step."""

    lines: tuple[str, ...]
    location: Location
    after: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """One `optimizer.step()`. `stale`: the gradients held those of the step before as well; None
    where not measured.
    `clipped` is the total norm it saw over the one that backward left, None where not measured.
    `cleared`: nothing was left of what backward had given the parameters that it holds; None
    where not measured.

    `blind_to_scale`: it divides by the size of the gradient, so that a loss that is N times larger
    takes the same steps.

    `made` is where the optimizer was constructed, None where that was before the run was watched.
    `base_lr` is what a schedule multiplies, None without one. `clearing` is how the program could
    clear stale gradients, None where it has no name for them.

    Parameters that the program writes by hand (`w -= lr * w.grad`) are an update without an
    `optimizer` (""); `lr` is the number that it is written with, None where it is not one.
    `ascends` is the line in which such an update, or an optimizer of the program's own, adds the
    gradient.
    """

    step: int
    optimizer: str
    lr: float | None
    location: Location | None = None
    stale: bool | None = False
    clipped: float | None = None
    cleared: bool | None = None
    base_lr: float | None = None
    clearing: Clearing | None = None
    made: Location | None = None
    ascends: int | None = None
    blind_to_scale: bool = False


@dataclass(frozen=True, slots=True)
class LateClip:
    """A clipping at the wrong time. `order`: before-backward (there are no gradients yet),
    before-unscale (of gradients that a GradScaler has yet to unscale, from `scale` times their
    size), after-step (the optimizer has used them), between-passes (after each of several passes
    of which one step uses the sum), or one of-nothing (it was given no parameter).

    `function` of torch.nn.utils clips to `bound` what has the norm `total` (None for
    `clip_grad_value_`, which takes no norm; before-backward and of-nothing, that of the gradients
    that the step used).
    `other` is the call that should have come later (after-step) or earlier (before-unscale), or
    that used the gradients (before-backward, of-nothing).
    """

    step: int
    order: str
    function: str
    bound: float
    total: float | None
    scale: float
    location: Location | None = None
    other: Location | None = None

    @property
    def acts(self) -> bool:
        """Whether it changed a gradient, as far as is known."""
        return self.total is None or not self.total <= self.bound


@dataclass(frozen=True, slots=True)
class Summed:
    """A loss that is the sum of so many terms where a mean would divide by their number."""

    terms: int
    op: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a size is a finding, and where each number comes from.

    `gradient_growth` (GS401), of the gradient's norm over the whole depth or time: healthy models
    stay within a hundred (residual and normalised stacks, gated and orthogonal recurrences, 20 of
    which are among the tests); this is two orders of magnitude beyond.
    `gradient_fade` (GS402), likewise: an ordinary deep ReLU network in PyTorch's default
    initialisation loses a thousandth; this is two orders of magnitude beyond.
    `gradient_rms` (GS402), of an element: Adam divides by |g| + eps with eps = 1e-8 by default,
    and below it its steps shrink with the gradient.
    `gradient_share` (GS402), of the largest: float32, whose resolution is 1.2e-7, all but rounds
    it away.
    `zero_passes` (GS403): a factor of zero is how LoRA, residual branches and warm-ups start;
    after this many backward passes it has had the time to move.
    `loss_growth` (GS404), of losses in a row before they overflow: noise of batches stays below it.
    """

    gradient_growth: float = 1e4
    gradient_fade: float = 1e-5
    gradient_rms: float = 1e-8
    gradient_share: float = 1e-6
    zero_passes: float = 3
    loss_growth: float = 100.0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """How large gradients were: what the rules about magnitude judge, by `Limits`."""

    leaves: tuple[Leaf, ...] = ()
    growths: tuple[Growth, ...] = ()
    leaps: tuple[Leap, ...] = ()
    absences: tuple[Absence, ...] = ()
    constants: tuple[Absence, ...] = ()  # of what a loss depends on, and one part of it not
    died: tuple[Absence, ...] = ()  # of leaves that had a gradient once, and have zeros by now
    updates: tuple[Update, ...] = ()
    usages: tuple[Usage, ...] = ()  # of the optimizers
    measured: object = None  # what a command measured on top: `norms.facts.Measured`
    clips: tuple[LateClip, ...] = ()
    scaled_updates: tuple[ScaledUpdate | UnscaledPass, ...] = ()
    summed: Summed | None = None  # of the first step whose loss is a sum
    swelling: Growth | None = None  # of results, the first to grow beyond what is finite
    oversized: Oversized | None = None
    own_backwards: tuple[OwnBackward, ...] = ()  # of modules, that nobody called
    modes: tuple[ModuleUse, ...] = ()  # that models were left in
    reloads: tuple[Reload, ...] = ()  # of states that are no copies
    undoings: tuple[Undoing, ...] = ()
    unread_flags: tuple[UnreadFlag, ...] = ()
    depth: Depth | None = None  # of the last step whose forward pass was watched

    def joined(self, others: Iterable[Magnitudes]) -> Magnitudes:
        """With the norms of whole leaves in the place of those of their parts, which the other
        ranks of the program have measured. What is not zero elsewhere is not missed here."""
        parts: dict[str, dict[tuple[int, ...], Leaf]] = {}
        for leaf in (leaf for one in (self, *others) for leaf in one.leaves if leaf.shard):
            parts.setdefault(leaf.name, {}).setdefault(leaf.shard or (), leaf)
        here = {leaf.name for leaf in self.leaves}
        elsewhere = (next(iter(parts[name].values())) for name in parts if name not in here)
        leaves = tuple(
            _whole(leaf, tuple(parts[leaf.name].values())) if leaf.shard else leaf
            for leaf in (*self.leaves, *elsewhere)
        )
        alive = {leaf.name for leaf in leaves if leaf.shard and any(leaf.known)}
        absences = (one for one in self.absences if one.missing or one.leaf not in alive)
        return replace(self, leaves=leaves, absences=tuple(absences))

    @property
    def dimensions(self) -> tuple[tuple[str, int, int], ...]:
        """The fewest and the most that leaves have whose names end alike: ("weight", 1, 2)."""
        found: dict[str, list[int]] = {}
        for leaf in self.leaves:
            found.setdefault(leaf.name.rpartition(".")[2], []).append(len(leaf.shape))
        return tuple((name, min(seen), max(seen)) for name, seen in found.items())

    def totals(self) -> tuple[float, ...]:
        """The L2 norm of all gradients together, one a step."""
        steps = max((len(leaf.norms) for leaf in self.leaves), default=0)
        return tuple(
            math.hypot(*(leaf.norms[step] or 0.0 for leaf in self.leaves)) for step in range(steps)
        )


UNMEASURED = Magnitudes()


def _whole(leaf: Leaf, parts: tuple[Leaf, ...]) -> Leaf:
    """Squares add up."""
    norms = zip(*(part.norms for part in parts), strict=False)
    return replace(
        leaf,
        weight=math.hypot(*(part.weight for part in parts)),
        start=math.hypot(*(part.start for part in parts)),
        norms=tuple(_together(one) for one in norms),
    )


def _together(norms: tuple[float | None, ...]) -> float | None:
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if known else None
