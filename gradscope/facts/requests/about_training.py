"""About the training: steps, rates, clipping, and the order in which they are done."""

from gradscope.dataclass import dataclass
from gradscope.facts.compared import DataMade
from gradscope.facts.magnitudes import Clearing, NoGradient, Summed, Update
from gradscope.facts.modes import (
    EvalUndone,
    HastyStatistics,
    KeptDropout,
    ModeKept,
    StaleStatistics,
)
from gradscope.facts.numbers import text_of
from gradscope.facts.places import Location
from gradscope.facts.requests.request import Request
from gradscope.facts.usage import Schedule, Usage


class LowerRate(Request):
    """Take shorter steps. `old` is the learning rate that did not hold, `new` the one to write
    (None: any that holds), `update` where it is used. `trial_steps`: how long a run with another
    rate has to be to tell whether it holds; None where no other rate can be tried."""

    old: float | None = None
    new: float | None = None
    update: Update | None = None
    trial_steps: int | None = None


class StartStateAnew(Request):
    """Let an optimizer begin without the state that is `loaded` there."""

    loaded: Location


class LeaveOutOfGroup(Request):
    """Leave out of the group at the position `whole` what the one at `part` has."""

    whole: int
    part: int


class BoundBase(Request):
    """Keep what a schedule takes a power of at 0 or above."""


class OfUpdate(Request):
    """Of what moves the parameters at `update`."""

    update: Update


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


class DifferentiateAside(Request):
    """Ask for the gradient that the backward at a place is for, and for no other."""

    place: Location


class StepAtTheEnd(OfUsage):
    """Step after the last pass of an epoch as well, whatever their number."""


class StepWhereCleared(OfUsage):
    """Step as seldom as the gradients are cleared, right before it."""


class MoveOnWithSteps(OfUsage):
    """Let the schedule be moved on where the optimizer steps, and nowhere else."""


class SlowSchedule(OfUsage):
    """Let the schedule last as long as the training."""


class FactorAboveZero(Request):
    """Let the function at `given_by`, which gives the factor of a learning rate, give more than 0
    from the start."""

    given_by: Location


class DecayRate(Request):
    """Let the schedule divide the learning rate by what it multiplies it by."""

    schedule: Schedule


class WaitForLess(OfUsage):
    """Let the schedule wait until a value, a loss, falls no further."""


class WaitForMore(OfUsage):
    """Let the schedule wait until a value, an accuracy, rises no further."""


class StepThroughScaler(Request):
    """Let the GradScaler take the step, once it has divided the gradients by its scale."""


class ScaleThisLoss(Request):
    """Let the GradScaler multiply this loss as it does the others."""


class UnscaleBeforeStep(Request):
    """Let the GradScaler divide the gradients by its scale where it takes the step, and clip them
    there."""


class RateOfOne(OfUsage):
    """Give the optimizer the learning rate 1, which a schedule then multiplies by the rates."""


class ToHold(OfUsage):
    """Let the optimizer hold the parameters `leaves`, which get a gradient."""

    leaves: tuple[str, ...]


class MakeOptimizerAnew(Request):
    """Make the optimizer that is `made` there where modules are put in the place of those that it
    holds: `replaced_by` has the lines, innermost first, of each such place. `scheduled_at` is where
    schedules for it are made."""

    reason: NoGradient
    made: Location
    replaced_by: tuple[tuple[Location, ...], ...]
    scheduled_at: tuple[Location, ...] = ()


class GiveParameters(ToHold):
    """In the place of those that it was given."""


class AddParameters(ToHold):
    """Beside those that it was given. `collected` is the expression of a list of them."""

    collected: str = ""


class CompleteGroups(ToHold):
    """Let the groups, which part the parameters by a condition each, leave none out."""


class KeepScaler(Request):
    """Let a GradScaler keep the scale that it has found."""


class ScaleLoss(Request):
    """Scale the loss for backward, and the gradients back before the step."""


class WiderWeights(Request):
    """Hold the parameters in float32; their `dtype` is too narrow for the steps."""

    dtype: str


class WiderParameter(Request):
    """Hold the parameter of the last part of `name` in float64: float32 is too narrow for its
    steps."""

    name: str


class AverageLoss(Request):
    """A mean in the place of a sum."""

    total: Summed


class Standardise(Request):
    """Bring the data that gets a name there to mean 0 and spread 1."""

    made: DataMade


class DropLastBatch(Request):
    """Leave the last batch out, which has fewer items than the others."""


class TurnSign(Request):
    """Minimise the negative of the loss whose backward is called there."""

    backward: Location


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


class FollowStatistics(Request):
    """Copy the statistics of BatchNorm where a model's weights are made to follow another one's."""

    stale: StaleStatistics


class LowerMomentum(Request):
    """Let the running statistics of BatchNorm keep what they take of the last batch now."""

    hasty: HastyStatistics


class DropInTraining(Request):
    """Drop values in train mode alone."""

    kept: KeptDropout


class WriteAverage(Request):
    """Write an average of weights into the parameter that is to follow by it, past autograd where
    it may not be written in place as it is."""

    may_write: bool


class SetEvalAgain(Request):
    """Set frozen parts to eval mode again where they were set back."""

    undone: EvalUndone


class PrefixNames(Request):
    """Give tensors by the names that they have in the module that is called: with the `prefix`."""

    prefix: str
    names: tuple[str, ...]


class SetFlag(Request):
    """Set `requires_grad` of the parameters where `attribute` is set, of them or of a module."""

    attribute: str
    of_module: bool


class CopyState(Request):
    """Keep a copy of a module's state, where references to its parameters are kept."""


class LoadStateOf(Request):
    """Load the state of the module that `other` leads to, an expression, and not its own."""

    other: str


class LoadOtherWay(Request):
    """Load the weights that are trained into the module that they were overwritten with."""


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


class KeepAsList(Request):
    """Keep the parameters that are clipped as a list, which can be gone through again."""


class DrawWeights(Request):
    """Start each of the weights of the same name from numbers drawn at random, which `are_small`,
    in the place of one number for all."""

    name: str
    are_small: bool = False


class MakeEach(Request):
    """Make a module for each place of a container that holds one several times."""


@dataclass(frozen=True, slots=True)
class ZeroFactor:
    """A factor that starts at 0 as the other one does, and `place`, which has made it so: for both
    where it is `shared`, `earlier` for this one. It has so many dimensions. The rest is as in
    `Zeroed`. Of several layers in a row `last` is what leads to the one behind all others: where
    the call at `place` was given `all` of them, from what it was given, else from the variable that
    holds the model, and `inside` from the module of the method there, but for the whole model.
    `helper`: what fills them, in the function that is called there."""

    place: Location
    shared: bool
    earlier: bool
    drawn: bool
    later: bool
    dims: int
    last: str = ""
    inside: str = ""
    all: bool = False
    helper: Location | None = None


class StartFactors(Request):
    """Start each of these from other numbers than 0, and leave the factor behind them at 0."""

    factors: tuple[ZeroFactor, ...]


class KeepNorm(Request):
    """Weights that keep the norm of what passes through them; `fades`: or a steeper activation.
    `axis` and `nodes` as in `Growth`; `dimensions` as `Magnitudes` has them."""

    axis: str
    nodes: tuple[str, ...] = ()
    dimensions: tuple[tuple[str, int, int], ...] = ()
    fades: bool = False


class ScaleByInputs(Request):
    """Make weights that the program computes smaller by the root of the number of inputs that they
    sum over, and larger by that of `gain`: where it draws the matrix `made` at that place that they
    are computed with, or at the `products`, each with whether the weight is its first operand."""

    products: tuple[tuple[Location, bool], ...]
    made: Location | None
    gain: int
