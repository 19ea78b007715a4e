"""About the gradient, and what autograd computes it with."""

from gradscope.facts.functions import Compared, SavedInstead, Slip
from gradscope.facts.magnitudes import NoGradient
from gradscope.facts.modes import OwnBackward
from gradscope.facts.places import Call, Location
from gradscope.facts.refusals import Carried, Given, Write
from gradscope.facts.requests.request import Request


class Reattach(Request):
    """Lead the gradient past what ends it. `name` is a tensor that is to require a gradient."""

    reason: NoGradient
    name: str = ""


class CopyBeforeWriting(Request):
    """Write into a copy of what autograd has saved."""


class CopyWhenKept(Request):
    """Keep a copy as this attribute of the ctx of a custom Function."""

    attribute: str


class HookBackward(Request):
    """Let autograd call the method `backward` of a module, with the gradient of its result."""

    own: OwnBackward


class DifferentiateForward(Request):
    """Let autograd differentiate the forward in the place of what a custom backward computes."""


class Unmark(Request):
    """Let backwards be differentiated that are marked, at these places, to be so once."""

    marks: tuple[Location, ...]


class DifferentiableForm(Request):
    """Compute `op` in a form whose backward has a derivative."""

    op: str


class Rewrite(Request):
    """The gradient that a custom backward returns, corrected. `template` is the right expression,
    with `{returned}` for what is computed now, `{elementwise}` for that without its mean, and
    `{grad_output}` for backward's argument; `slips` are what to write where there is none.
    `position` tells which of several gradients it is about. `saved` is the wrong tensor that was
    saved, `wrong_where` the elements at which the gradient is wrong."""

    template: str | None = None
    position: int = 0
    saved: SavedInstead | None = None
    wrong_where: Compared | None = None
    slips: tuple[Slip, ...] = ()


class Exchange(Request):
    """Two of the gradients that a custom backward returns change places."""

    one: int
    other: int


class Allow(Request):
    """What autograd allows, in the place of what it refused."""


class OfName(Allow):
    """Of the tensor that the program calls `name`."""

    name: str


class RunOnce(Allow):
    """Call what is checkpointed at a place as it is, without computing it again in backward."""

    place: Location


class OutOfPlace(Allow):
    """Compute a new tensor at `place`, where one is changed; by a layer of the class `module`."""

    place: Location | None
    module: str = ""


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
    """Give `call`, and `others`, the value `name` without its graph."""

    call: Call
    name: str
    others: tuple[Call, ...] = ()


class DetachRead(Allow):
    """Give `call` the value that an earlier step has left without its graph."""

    call: Call


class KeepDetached(Allow):
    """Keep what the call of `detach` at `location` gives, or have it change its tensor."""

    location: Location


class ProjectLeaf(Allow):
    """Write the bounded values that `call` gives a leaf's name into the leaf, without a graph."""

    call: Call


class DetachMade(Allow):
    """Give what `call` makes without its graph."""

    call: Call


class ComputeAnew(Allow):
    """Run `calls` in each turn of the loop that calls backward there. `once` is the outermost line
    on the way to them that has run once."""

    calls: tuple[Call, ...]
    backward: Location
    once: Location | None = None


class KeepGraph(Allow):
    """Let the backward that is called there leave its graph for a second one; `learnt`: and give
    what it hands out a graph of its own. `detach`: what only weighs the first loss is a number
    there."""

    backward: Location
    learnt: bool = False
    detach: DetachUse | None = None


class UpdateLater(Allow):
    """Make `update`, to which `place` leads, once the backward has run to which `backward` leads in
    the same function."""

    update: Write
    place: Location
    backward: Location


class ComputeAfterUpdate(Allow):
    """Run `calls`, for the backward to which `backward` leads, once the update is made to which
    `place` leads in the same function."""

    calls: tuple[Call, ...]
    place: Location
    backward: Location


class WithoutGrad(Allow):
    """Write into a leaf without autograd looking on."""


class UpdateInPlace(Allow):
    """Write the update of a leaf into it, without autograd looking on."""


class LeafAtLast(Allow):
    """Make what is to learn a leaf once it is computed."""


class RetainGradient(OfName):
    """Have backward keep the gradient of `name`, which is no leaf."""


class CopyLeaf(OfName):
    """Write into a copy of the leaf `name`."""


class ReduceLoss(Allow):
    """Make one number of what is differentiated, where it is made or at `backward`."""

    backward: Location | None


class FindUnused(Allow):
    """Let DistributedDataParallel look for the parameters that a forward does not use."""


class Thaw(Allow):
    """Let the parameters of `modules` require gradients again: in each turn of the innermost loop
    that is around one of these places, or where they are frozen."""

    modules: tuple[str, ...]
    turns: tuple[Location, ...] = ()


class SwitchOffWithin(Allow):
    """Switch gradients off for one function or block, where a statement at `switch` does so for
    all that follows; `backward` is where the program had come to when autograd raised. Both have
    the innermost place first."""

    switch: tuple[Location, ...]
    backward: tuple[Location, ...]


class KeepWithoutGraph(Allow):
    """Keep the values of `attribute` alone on a module, and compute with a local name."""

    attribute: str


class WithFloats(Allow):
    """Make numbers with a fraction of what is to have a gradient."""


class DetachForArray(OfName):
    """Let NumPy read the values of `name` alone, without its graph."""


class DetachInstead(OfName):
    """Cut `name` off from its graph, where it is told to require no gradient."""


class WriteIntoParameter(OfName):
    """Write the values into the parameter `name`, and leave it in its place."""


class ByMagnitude(Allow):
    """Square the magnitude of complex numbers, and not the numbers."""


class KeepOnContext(Allow):
    """Hand `names` to the backward as attributes of its context."""

    names: tuple[str, ...]


class SetSparse(Allow):
    """Have the layers that are made at these places give gradients that are `sparse`, or not."""

    sparse: bool
    layers: tuple[Location, ...]


class DifferentiateBy(OfName):
    """Ask for the gradient of the tensor `name`."""


class HandOver(Allow):
    """Compute with what was made of `original`: hand one of `holders` to the function that is
    called and has come to `within`, or read `name` in its place."""

    original: str
    name: str
    holders: tuple[str, ...]
    within: Location | None


class GiveInstead(Allow):
    """Give a call what was computed from its argument, or from a part of that."""

    given: Given


class JoinViews(Allow):
    """Put the views of a tensor together again where the tensor itself was read."""


class AllowUnused(Allow):
    """Let a gradient be None where there is no dependence."""


class KeepRandomState(Request):
    """Let `checkpoint` keep the state of the generators for the second run of its part."""


class RestoreRandomState(Request):
    """Keep the state of the generator before each of the calls in forward, the second of each of
    `places`, and set it where backward runs the same part again, at the first."""

    places: tuple[tuple[Location | None, Location | None], ...]
    device: str
