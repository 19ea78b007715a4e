"""What a rule asks a repair for: a change, and the facts that tell where and how.

Each is a class of its own. `rules/wording/proposals` says what it is called, and what it looks like
in code; `repair/write/propose` which function writes it."""

from dataclasses import dataclass
from typing import dataclass_transform

from gradscope.facts.functions import Compared, OwnBackward, SavedInstead
from gradscope.facts.magnitudes import Clearing, NoGradient, Summed, Update
from gradscope.facts.numbers import text_of
from gradscope.facts.places import Call, Location
from gradscope.facts.refusals import Carried, Unfit, Write
from gradscope.facts.usage import Flat, ModeKept, Usage


@dataclass_transform(frozen_default=True)
class Request:
    """A change of the program, a frozen dataclass; one without fields is said by its class."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class HarmlessOperand(Request):
    """A harmless operand where the result is thrown away: `hidden` from the loss, or met by it."""

    hidden: bool


class KeepOff(Request):
    """Keep an operand of the op off the edge on which it lies, for good."""


class DivideByOne(Request):
    """Divide by 1 where the divisor is 0: 0 / 0 counts as 0, as does a negative power of 0."""


class LearnPositive(Request):
    """A function that stays positive for the ReLU at `made`, or around what is `signed`: that, or
    its `argument`, by name and position."""

    made: Location
    signed: bool
    argument: tuple[str, int] | None = None


class AddBehind(Request):
    """Add an epsilon to the result of a call that is greater than 0 in mathematics."""

    made: Call


class SelectElements(Request):
    """Reduce over the elements at which the op has a value: those of its data tell which."""


class CleanByMask(Request):
    """Put 0 in the place of bad data where a mask of the program tells it."""


class StableForm(Request):
    """Another form of the expression around the op, which computes the same."""


class WiderDtype(Request):
    """Compute the op in a wider dtype."""


class AllowEmpty(Request):
    """A result for what the op does with nothing: no elements, no targets, no keys."""


class AddToDiagonal(Request):
    """Add `size` to the diagonal of the matrix that the op takes, the user's `name`."""

    size: float
    name: str


class FitNumber(Request):
    """Write the largest number of the dtype in the place of one that it cannot hold."""

    unfit: Unfit


class IgnoreTarget(Request):
    """Leave the targets of that value out."""

    value: int


class TameSlope(Request):
    """Let no gradient through where the operand `argument` is within a distance of a singular point
    of the op: `near` is just beyond the elements that are, `far` just short of all others, None
    where not measured. `own`: the steep slope is that towards this operand."""

    argument: str
    own: bool = True
    near: float | None = None
    far: float | None = None


class Unsaturated(Request):
    """Raise the opposite probability: lowering one has no slope where it is low (`flat`)."""

    flat: Flat


class FillMemory(Request):
    """Allocate memory that is filled; `op` allocated it."""

    op: str


# The gradient, and what autograd computes it with


class Reattach(Request):
    """Lead the gradient past what ends it. `name` is a tensor that is to require a gradient."""

    reason: NoGradient
    name: str = ""


class CopyBeforeWriting(Request):
    """Write into a copy of what autograd has saved."""


class HookBackward(Request):
    """Let autograd call the method `backward` of a module, with the gradient of its result."""

    own: OwnBackward


class Rewrite(Request):
    """The gradient that a custom backward returns, corrected. `template` is the right expression,
    with `{returned}` for what is computed now, `{elementwise}` for that without its mean, and
    `{grad_output}` for backward's argument; without one the formula is searched for a slip.
    `position` tells which of several gradients it is about. `saved` is the wrong tensor that was
    saved, `wrong_where` the elements at which the gradient is wrong."""

    template: str | None = None
    position: int = 0
    saved: SavedInstead | None = None
    wrong_where: Compared | None = None


class Exchange(Request):
    """Two of the gradients that a custom backward returns change places."""

    one: int
    other: int


class Allow(Request):
    """What autograd allows, in the place of what it refused."""


class OutOfPlace(Allow):
    """Compute a new tensor where `write` changes one."""

    write: Write


class CopyWhenSaved(Allow):
    """Let `call` save a copy of its `role`, the user's `name`, which `write` changes later."""

    call: Call
    role: str
    name: str
    write: Location | None = None


class DetachCarried(Allow):
    """Let go of the graph of a value once backward has run; `emptied`: of the values, a list."""

    carried: Carried
    emptied: bool = False


class DetachUse(Allow):
    """Give `call` the value `name` without its graph."""

    call: Call
    name: str


class ComputeAnew(Allow):
    """Run `calls` in each turn of the loop that calls backward there."""

    calls: tuple[Call, ...]
    backward: Location


class KeepGraph(Allow):
    """Let the backward that is called there leave its graph for a second one."""

    backward: Location


class UpdateLater(Allow):
    """Make `update` once the backward that is called there has run."""

    update: Write
    backward: Location


class ComputeAfterUpdate(Allow):
    """Run `calls`, for the backward that is called there, once `update` is made."""

    calls: tuple[Call, ...]
    update: Write
    backward: Location


class WithoutGrad(Allow):
    """Write into a leaf without autograd looking on."""


class CopyLeaf(Allow):
    """Write into a copy of the leaf `name`."""

    name: str


class ReduceLoss(Allow):
    """Make one number of what is differentiated."""


class FindUnused(Allow):
    """Let DistributedDataParallel look for the parameters that a forward does not use."""


class Thaw(Allow):
    """Let the parameters of `modules` require gradients again."""

    modules: tuple[str, ...]


class DifferentiateBy(Allow):
    """Ask for the gradient of the tensor `name`."""

    name: str


class AllowUnused(Allow):
    """Let a gradient be None where there is no dependence."""


# The training


class LowerRate(Request):
    """Take shorter steps. `old` is the learning rate that did not hold, `new` the one to write
    (None: any that holds), `update` where it is used. `trial_steps`: how long a run with another
    rate has to be to tell whether it holds; None where no other rate can be tried."""

    old: float | None = None
    new: float | None = None
    update: Update | None = None
    trial_steps: int | None = None


class OfUpdate(Request):
    """Of what moves the parameters at `update`."""

    update: Update


class SetOption(OfUpdate):
    """Give the optimizer of `update` another value of one of its options."""

    name: str
    old: float
    new: float


class BoundSchedule(OfUpdate):
    """Keep the learning rate, which a schedule sets, from going below 0, or above `high`."""

    high: float | None = None

    @property
    def factor(self) -> str:
        """`high` in what the schedule multiplies the first rate by; "" where that is not known."""
        base = self.update.base_lr
        return f"{self.high / base:.2g}" if self.high is not None and base else ""


class ClearGradients(Request):
    """Clear the gradients before each backward; None where the program has no name for them."""

    clearing: Clearing | None


class StepBeforeClearing(OfUpdate):
    """Step with the gradients before they are cleared."""


class Descend(OfUpdate):
    """Subtract the gradient that the update adds."""


class OfUsage(Request):
    """Of the cycle in which an optimizer uses its gradients."""

    usage: Usage


class StepAfterBackward(OfUsage):
    """Let the optimizer step once backward has run."""


class ClearAfterStep(OfUsage):
    """Clear the gradients where the optimizer has used them, and nowhere else."""


class StepAtTheEnd(OfUsage):
    """Step after the last pass of an epoch as well, whatever their number."""


class StepWhereCleared(OfUsage):
    """Step as seldom as the gradients are cleared, right before it."""


class SlowSchedule(OfUsage):
    """Let the schedule last as long as the training."""


class KeepScaler(Request):
    """Let a GradScaler keep the scale that it has found."""


class ScaleLoss(Request):
    """Scale the loss for backward, and the gradients back before the step."""


class WiderWeights(Request):
    """Hold the parameters in float32; their `dtype` is too narrow for the steps."""

    dtype: str


class AverageLoss(Request):
    """A mean in the place of a sum."""

    total: Summed


class DivideLoss(Request):
    """Divide the loss whose backward is called there by the passes of one update."""

    backward: Location
    passes: int


class AverageOnce(Request):
    """Leave out a division by the number of ranks: at `place` that of the gradients (`by_hand`),
    else that of the loss whose backward is called there."""

    place: Location
    by_hand: bool


class SetMode(Request):
    """Set train mode before training, and eval mode before an evaluation."""

    kept: ModeKept


class ClipNorm(Request):
    """Clip the total gradient norm before each step, to `max_norm` where a healthy one is known."""

    max_norm: float | None = None

    @property
    def bound(self) -> str:
        """As it is written; 1.0 is the usual one."""
        return "1.0" if self.max_norm is None else text_of(self.max_norm, 3)


class MoveClipping(Request):
    """Clip what the step uses: `unscale`s the gradients first, or clips later or earlier; once they
    are all `summed` of those after each of which it is clipped now."""

    unscale: bool
    function: str
    bound: float
    summed: bool = False


class KeepNorm(Request):
    """Weights that keep the norm of what passes through them; `fades`: or a steeper activation.
    `axis` and `nodes` as in `Growth`; `dimensions` as `Magnitudes` has them."""

    axis: str
    nodes: tuple[str, ...] = ()
    dimensions: tuple[tuple[str, int], ...] = ()
    fades: bool = False
