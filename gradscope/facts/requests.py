"""What a rule asks a repair for, beyond its kind: how to write it is for the repairs to say."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts.functions import Compared, OwnBackward, SavedInstead
from gradscope.facts.leaps import TameSlope
from gradscope.facts.magnitudes import Clearing, Summed, Update
from gradscope.facts.op_requests import OfOp
from gradscope.facts.places import Call, Location
from gradscope.facts.raised import OfRaised
from gradscope.facts.refusals import Carried, Write
from gradscope.facts.usage import Flat, Usage


@dataclass(frozen=True, slots=True)
class LowerRate:
    """Take shorter steps. `old` is the learning rate that did not hold, `new` the one to write
    (None: any that holds), `update` where it is used. `trial_steps`: how long a run with another
    rate has to be to tell whether it holds; None where no other rate can be tried."""

    old: float | None = None
    new: float | None = None
    update: Update | None = None
    trial_steps: int | None = None


@dataclass(frozen=True, slots=True)
class SetOption:
    """Give the optimizer of `update` another value of one of its options."""

    update: Update
    name: str
    old: float
    new: float


@dataclass(frozen=True, slots=True)
class BoundSchedule:
    """Keep the learning rate of `update`, which a schedule sets, from going below 0, or above
    `high`."""

    update: Update
    high: float | None = None

    @property
    def factor(self) -> str:
        """`high` in what the schedule multiplies the first rate by; "" where that is not known."""
        base = self.update.base_lr
        return f"{self.high / base:.2g}" if self.high is not None and base else ""


@dataclass(frozen=True, slots=True)
class ClearGradients:
    """Clear the gradients before each backward; `clearing` is None where the program has no name
    for them."""

    clearing: Clearing | None


@dataclass(frozen=True, slots=True)
class StepBeforeClearing:
    """Step with the gradients before they are cleared."""

    update: Update


@dataclass(frozen=True, slots=True)
class StepAfterBackward:
    """Let the optimizer of `usage` step once backward has run."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class ClearAfterStep:
    """Clear the gradients where the optimizer of `usage` has used them, and nowhere else."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class StepAtTheEnd:
    """Step after the last pass of an epoch as well, whatever their number."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class StepWhereCleared:
    """Step as seldom as the gradients of `usage` are cleared, right before it."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class SlowSchedule:
    """Let the schedule of `usage` last as long as the training."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class KeepScaler:
    """Let a GradScaler keep the scale that it has found."""


@dataclass(frozen=True, slots=True)
class WiderWeights:
    """Hold the parameters in float32; their `dtype` is too narrow for the steps."""

    dtype: str


@dataclass(frozen=True, slots=True)
class AverageLoss:
    """A mean in the place of a sum."""

    total: Summed


@dataclass(frozen=True, slots=True)
class Descend:
    """Subtract the gradient that `update` adds."""

    update: Update


@dataclass(frozen=True, slots=True)
class DivideLoss:
    """Divide the loss whose backward is called there by the passes of one update."""

    backward: Location
    passes: int


@dataclass(frozen=True, slots=True)
class ClipNorm:
    """Clip the total gradient norm before each step, to `max_norm` where a healthy one is known."""

    max_norm: float | None = None


@dataclass(frozen=True, slots=True)
class MoveClipping:
    """Clip what the step uses: `unscale`s the gradients first, or clips later or earlier; once they
    are all `summed` of those after each of which it is clipped now."""

    unscale: bool
    function: str
    bound: float
    summed: bool = False


@dataclass(frozen=True, slots=True)
class Unsaturated:
    """A loss that lowers a probability has no slope where it is low, as `flat` tells: raise the
    opposite one instead."""

    flat: Flat


@dataclass(frozen=True, slots=True)
class HookBackward:
    """Let autograd call the method `backward` of a module, with the gradient of its result."""

    own: OwnBackward


@dataclass(frozen=True, slots=True)
class KeepNorm:
    """Weights that keep the norm of what passes through them; `fades`: or a steeper activation.
    `axis` and `nodes` as in `Growth`."""

    axis: str
    nodes: tuple[str, ...] = ()
    fades: bool = False


@dataclass(frozen=True, slots=True)
class FillMemory:
    """Allocate memory that is filled; `op` allocated it."""

    op: str


@dataclass(frozen=True, slots=True)
class ScaleLoss:
    """Scale the loss for backward, and the gradients back before the step."""


@dataclass(frozen=True, slots=True)
class Reattach:
    """Lead the gradient past what ends it; `reason` as in `Absence`."""

    reason: str


@dataclass(frozen=True, slots=True)
class CopyBeforeWriting:
    """Write into a copy of what autograd has saved."""


@dataclass(frozen=True, slots=True)
class OutOfPlace:
    """Compute a new tensor where `write` changes one."""

    write: Write


@dataclass(frozen=True, slots=True)
class CopyWhenSaved:
    """Let `call` save a copy of what it keeps as `role`, the user's `name`, which `write` changes
    later."""

    call: Call
    role: str
    name: str
    write: Location | None = None


@dataclass(frozen=True, slots=True)
class DetachCarried:
    """Let go of the graph of a value once backward has run through it."""

    carried: Carried


@dataclass(frozen=True, slots=True)
class DetachUse:
    """Give `call` the value `name` without its graph."""

    call: Call
    name: str


@dataclass(frozen=True, slots=True)
class ComputeAnew:
    """Run `calls` in each turn of the loop that calls backward there."""

    calls: tuple[Call, ...]
    backward: Location


@dataclass(frozen=True, slots=True)
class KeepGraph:
    """Let the backward that is called there leave its graph for a second one."""

    backward: Location


@dataclass(frozen=True, slots=True)
class UpdateLater:
    """Make `update` once the backward that is called there has run."""

    update: Write
    backward: Location


@dataclass(frozen=True, slots=True)
class ComputeAfterUpdate:
    """Run `calls`, for the backward that is called there, once `update` is made."""

    calls: tuple[Call, ...]
    update: Write
    backward: Location


@dataclass(frozen=True, slots=True)
class WithoutGrad:
    """Write into a leaf without autograd looking on."""


@dataclass(frozen=True, slots=True)
class CopyLeaf:
    """Write into a copy of the leaf `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class ReduceLoss:
    """Make one number of what is differentiated."""


@dataclass(frozen=True, slots=True)
class FindUnused:
    """Let DistributedDataParallel look for the parameters that a forward does not use."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let the parameters of `modules` require gradients again."""

    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DifferentiateBy:
    """Ask for the gradient of the tensor `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class AllowUnused:
    """Let a gradient be None where there is no dependence."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The gradient that a custom backward returns, corrected.

    `template` is the right expression, with `{returned}` for what is computed now, `{elementwise}`
    for that without its mean, and `{grad_output}` for backward's argument; without one the formula
    is searched for a slip. `position` tells which of several gradients it is about. `saved` is the
    wrong tensor that was saved, `wrong_where` the elements at which the gradient is wrong.
    """

    template: str | None = None
    position: int = 0
    saved: SavedInstead | None = None
    wrong_where: Compared | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two of the gradients that a custom backward returns change places."""

    one: int
    other: int


# What autograd allows, in the place of what it refused.
OfRefusals = (
    OutOfPlace
    | CopyWhenSaved
    | DetachCarried
    | DetachUse
    | ComputeAnew
    | KeepGraph
    | UpdateLater
    | ComputeAfterUpdate
    | WithoutGrad
    | CopyLeaf
    | ReduceLoss
    | FindUnused
    | Thaw
    | DifferentiateBy
    | AllowUnused
)
# Those whose words follow from themselves alone.
Plain = (
    LowerRate
    | SetOption
    | BoundSchedule
    | ClearGradients
    | StepBeforeClearing
    | StepAfterBackward
    | ClearAfterStep
    | StepAtTheEnd
    | StepWhereCleared
    | Unsaturated
    | HookBackward
    | SlowSchedule
    | KeepScaler
    | WiderWeights
    | AverageLoss
    | Descend
    | DivideLoss
    | ClipNorm
    | MoveClipping
    | KeepNorm
    | FillMemory
    | ScaleLoss
    | Reattach
    | CopyBeforeWriting
    | OfRefusals
    | TameSlope
)
Request = Plain | OfOp | OfRaised | Rewrite | Exchange
