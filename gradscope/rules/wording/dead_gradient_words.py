"""What is said of each reason for which a gradient is missing or exactly 0."""

from typing import NamedTuple

from gradscope.facts import Absence, NoGradient
from gradscope.rules.reading.missing import NOT_HELD


class Words(NamedTuple):
    """The mechanism; a few words for under the carets; and what to do about it."""

    why: str
    label: str = "the gradient ends here"
    cure: str = "keep the graph between these parameters and the loss"


PUTS_OTHERS = "puts others in the place of what the optimizer holds"
WORDS = {
    NoGradient.DETACH: Words(
        "`detach` (and `.data`) gives the values without their graph, so backward never learns that"
        " they came from these parameters.",
        "the graph ends here",
        "drop the `.detach()` (or `.data`) on the way to the loss",
    ),
    NoGradient.NO_GRAD: Words(
        "Ops that run under `no_grad` leave no graph behind, so backward never learns that these"
        " parameters took part.",
        "no graph is recorded in here",
        "run the part that has to learn outside of `no_grad`",
    ),
    NoGradient.INFERENCE: Words(
        "A tensor that is made in inference mode has no version that autograd could check, so no op"
        " may save it for its backward: not even where it is an input that nobody trains.",
        "its tensors are none for autograd",
        "compute it under `torch.no_grad()`",
    ),
    NoGradient.CONSTANT: Words(
        "`torch.autograd.grad` hands out plain numbers where it is not asked with"
        " `create_graph=True`: backward never learns what they were computed from.",
        "hands out a gradient without its graph",
        "ask for the gradient with `create_graph=True`",
    ),
    NoGradient.PIECEWISE_LINEAR: Words(
        "A rectifier is made of straight lines: its slope is constant on either side, so that the"
        " derivative of its slope is 0 everywhere. What takes a second derivative through it gets"
        " 0, whatever the parameters are.",
        "is exactly 0, as is all that a second derivative of a rectifier gives",
        "use an activation that has a second derivative: `tanh`, `softplus`, `silu` or `sin`",
    ),
    NoGradient.FROZEN: Words(
        "`requires_grad` is False for all that it was computed from: autograd records nothing.",
        "takes `requires_grad` away",
        "leave `requires_grad` on for what has to learn",
    ),
    NoGradient.LATE: Words(
        "Its values were read before it was made to require a gradient. What was computed from"
        " them then has no graph, and nothing has read it since.",
        "reads it without a graph",
        "let it require a gradient before it is read",
    ),
    NoGradient.LEAFLESS: Words(
        "Nothing that it was computed from requires a gradient: a tensor does so only where that is"
        " asked for.",
        "does not require a gradient",
        "let the tensor require a gradient",
    ),
    NoGradient.FUNCTION: Words(
        "They go into a custom `autograd.Function` whose backward returns None in the place of"
        " their gradient.",
        "goes into a Function whose backward returns None",
        "return their gradient in the Function's backward",
    ),
    NoGradient.CHECKPOINT: Words(
        "A reentrant checkpoint runs its function without a graph, and gives the result one only"
        " where an input requires grad: parameters are none of its inputs.",
        "none of its inputs requires grad",
        "checkpoint with `use_reentrant=False`",
    ),
    NoGradient.SAMPLED: Words(
        "A sample is drawn at random, and PyTorch gives the draw no derivative in the parameters of"
        " its distribution: `sample()` runs without a graph, and backward through `torch.normal` or"
        " `torch.bernoulli` gives 0.",
        "draws a sample",
        "draw with `rsample()`, or as `mean + std * torch.randn_like(mean)`; a discrete draw needs"
        " a straight-through or a score-function estimator",
    ),
    NoGradient.STRAIGHT_THROUGH: Words(
        "A value that is added and subtracted again changes no number: it is there to get the"
        " gradient of the sum, past the choice that has none. `detach` is called on the whole sum"
        " here, and takes that gradient too.",
        "takes the gradient of both",
        "detach the difference alone: `z + (q - z).detach()`",
    ),
    NoGradient.NEAREST: Words(
        "`nearest` picks the closest pixel, which a small move of the grid does not change: its"
        " derivative in the grid is 0 everywhere.",
        "picks the nearest pixel",
        "interpolate with `bilinear`",
    ),
    NoGradient.INTEGER: Words(
        "Integers and booleans carry no gradient: what is cast to them, or found by `argmax`,"
        " `argsort` or a comparison, is cut off from what came before.",
        "the graph ends here",
        "use a differentiable form: `softmax` for `argmax`, a sum of sigmoids for a rank, a float"
        " for the cast",
    ),
    NoGradient.NUMBER: Words(
        "A Python number carries no graph: what `item()`, `float()` or `tolist()` read out comes"
        " back as a constant.",
        "the graph ends here",
        "keep the tensor: leave out `.item()` and `.tolist()` until it is printed",
    ),
    NoGradient.REWRAPPED: Words(
        "`nn.Parameter(...)` around a computed value makes a new leaf of it, and the graph that"
        " computed the value ends there. No optimizer knows the new leaf.",
        "a new leaf is made of this",
        "use the computed value as it is, without `nn.Parameter(...)` around it",
    ),
    NoGradient.UNUSED: Words(
        "No op of the forward pass read them. The optimizer holds them, nothing moves them.",
        "defined here, never called",
        "call the layer in `forward`, or delete it",
    ),
    NoGradient.UNREACHED: Words(
        "The forward pass reads them, and what it computes from them never reaches the loss.",
        "the last value computed from them",
        "add what is computed from them to the loss, or delete it",
    ),
    NoGradient.DIFFERENTIATED: Words(
        "The loss reads derivatives of what they were used for, and nothing else of it. A"
        " derivative does not depend on a constant that is added: this one has no influence.",
        "only derivatives of this are read",
        "leave it, or let the loss read the value itself as well",
    ),
    NoGradient.UNREGISTERED: Words(
        "A module looks for its parameters in attributes that are modules or parameters: not in a"
        " list or dict of Python, and not in a plain tensor. So `parameters()` leaves these out,"
        " the optimizer never got them, and `state_dict()` and `to()` miss them too.",
        "is not where `parameters()` looks",
        "hold them in an `nn.ModuleList`, `nn.ModuleDict` or `nn.Parameter`",
    ),
    NoGradient.REPLACED: Words(
        "The optimizer holds the parameters that had these names before. They were replaced after"
        " it was made: it goes on moving the old ones, and nothing moves these.",
        "was given the parameters that were there before",
        "give the optimizer the new parameters with `add_param_group`, or make it anew",
    ),
    NoGradient.SWAPPED: Words(
        "An optimizer was given the parameter that had this name before. The forward has put"
        " another one in its place: the optimizer holds the old one, and nothing moves this one.",
        "takes the place of the one that the optimizer holds",
        "write the values into the parameter that is there",
    ),
    NoGradient.ADDED: Words(
        "They belong to a layer that the model got after this optimizer was given all of its"
        " parameters: nothing moves these.",
        "was given what the model had until then",
        "give the optimizer the new parameters with `add_param_group`, or make it afterwards",
    ),
    NoGradient.REMADE: Words(
        "At each backward pass they were new parameters: made, differentiated by, and gone before"
        " anything could move them. Where they are weights, what is trained beside them learns"
        " for other weights at each step.",
        "is new at each pass, and the optimizer holds others",
        "make them once, before the loop, and give them to the optimizer",
    ),
    NoGradient.PASSING: Words(
        "At each pass they are new parameters, which nothing holds once the loss is computed. Their"
        " gradients go with them: no optimizer can be given them, and each step begins with the"
        " values that they are made with.",
        "reads what is made anew at each pass",
        "make them once, in the module's `__init__`, before the optimizer is made",
    ),
    NoGradient.STALE: Words(
        "The optimizer was given these tensors, and the program computes with others: they were"
        " replaced after the optimizer was made.",
        "was given tensors that the model no longer has",
        "make the optimizer after the model has its final parameters",
    ),
    NoGradient.DEAD_RELU: Words(
        "Every input of the rectifier is negative, so its output is 0 and its slope is 0. No"
        " gradient passes, so nothing can bring the inputs back.",
        "all inputs are negative",
    ),
    NoGradient.SATURATED: Words(
        "The function is flat where its inputs lie: its slope there is exactly 0.",
        "flat at all its inputs",
    ),
    NoGradient.SINGLE: Words(
        "It normalises over one element, and what is divided by itself is 1: the result is the same"
        " whatever the operand is, and the slope is 0.",
        "normalises one element by itself",
    ),
    NoGradient.ZERO_OP: Words(
        "The op is piecewise constant, so its derivative is 0 everywhere.",
        "has slope 0 everywhere",
        "pass the gradient straight through: `x + (x.round() - x).detach()`",
    ),
    NoGradient.OVERWRITTEN: Words(
        "The values were overwritten before the loss read them; their gradient is 0.",
        "replaces the values",
        "write into a copy, or combine the values instead of replacing them",
    ),
    NoGradient.MASKED: Words("None of the values that depend on these parameters was chosen."),
    NoGradient.LEFT_OUT: Words(
        "The loss takes the other values and not theirs: they are multiplied by a 0 that is the"
        " same at every step, or lie outside of the slice.",
        cure="weigh them with more than 0, let the slice reach them, or delete their layers",
    ),
    NoGradient.ZERO_WEIGHT: Words(
        "The other factor of the product is exactly 0, and so is the derivative.",
        "times exactly 0",
        "keep the other factor away from 0",
    ),
    NoGradient.BY_INF: Words(
        "What it divides by is inf: the result is the same whatever the operand is, and the slope"
        " is 0.",
        "divides by inf",
        "keep what it divides by finite: a variance that overflowed, as in float16, is lost",
    ),
    NoGradient.ZERO_VALUE: Words(
        "Its operand is exactly 0, which is where its slope is 0: nothing moves it from there.",
        "has slope 0 at 0",
    ),
    NoGradient.ITSELF: Words(
        "Both sides of the difference are the same tensor. What goes back through the one is the"
        " negative of what goes back through the other, and their sum is 0.",
        "is subtracted from itself",
        "let the second be a constant: `x - x.detach()`",
    ),
    NoGradient.UNKNOWN: Words("Every element of the gradient is exactly 0."),
}
# Of a product that is 0 for good.
BOTH_AT_ZERO = Words(
    "Both factors of the product start at 0. The gradient of each is a multiple of the other, so"
    " that neither ever moves.",
    "starts at 0, as does what it is multiplied by",
    "start the first factor away from 0, and leave the other one at 0",
)
# The same, of layers that are started by a function which a call gives all of them.
ROW_AT_ZERO = Words(
    "Several layers in a row start at 0. What they give is 0, and so is what goes back through each"
    " of them, so that no weight of theirs ever moves. Of the last one alone, the others would move"
    " from the second step on.",
    "starts all of these layers at 0",
)


def what_of(absence: Absence) -> str:
    if absence.reason in NOT_HELD:
        return "a gradient that no optimizer uses"
    if absence.reason is NoGradient.PIECEWISE_LINEAR:
        return "no gradient, or one of exactly 0"
    return "no gradient" if absence.missing else "a gradient of exactly 0"


def when(absence: Absence) -> str:
    if absence.among is None:
        return ""
    first, last = absence.among
    return f" in steps {first} to {last} of an optimizer that holds them"
