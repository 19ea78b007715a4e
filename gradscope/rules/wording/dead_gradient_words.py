"""What GS403 says of each reason for a dead gradient, and what to do about it."""

from __future__ import annotations

WHY = {
    "array": "`detach` gives the values without their graph, for numpy, which knows no gradient:"
    " what is computed from the array is a constant to backward.",
    "detach": "`detach` (and `.data`) gives the values without their graph, so backward never"
    " learns that they came from these parameters.",
    "no_grad": "Ops that run under `no_grad` leave no graph behind, so backward never learns that"
    " these parameters took part.",
    "constant": "A norm over a single element subtracts the element from itself: its output is its"
    " bias, whatever comes in, and what comes back is rounding.",
    "function": "They go into a custom `autograd.Function` whose backward returns None in the place"
    " of their gradient.",
    "sampled": "A sample is drawn at random, and PyTorch gives the draw no derivative in the"
    " parameters of its distribution: `sample()` runs without a graph, and backward through"
    " `torch.normal` or `torch.bernoulli` gives 0.",
    "nearest": "`nearest` picks the closest pixel, which a small move of the grid does not change:"
    " its derivative in the grid is 0 everywhere.",
    "integer": "Integers and booleans carry no gradient: what is cast to them, or found by"
    " `argmax`, `argsort` or a comparison, is cut off from what came before.",
    "number": "A Python number carries no graph: what `item()`, `float()` or `tolist()` read out"
    " comes back as a constant.",
    "rewrapped": "`nn.Parameter(...)` around a computed value makes a new leaf of it, and the graph"
    " that computed the value ends there. No optimizer knows the new leaf.",
    "unused": "No op of the forward pass read them. The optimizer holds them, nothing moves them.",
    "unreached": "The forward pass reads them, and what it makes of them never reaches the loss.",
    "differentiated": "The loss reads derivatives of what they were used for, and nothing else of"
    " it. A derivative does not depend on a constant that is added: this one has no influence.",
    "unregistered": "A module looks for its parameters in attributes that are modules or"
    " parameters: not in a list or dict of Python, and not in a plain tensor. So `parameters()`"
    " leaves these out, the optimizer never got them, and `state_dict()` and `to()` miss them too.",
    "replaced": "The optimizer holds the parameters that had these names before. They were replaced"
    " after it was made: it goes on moving the old ones, and nothing moves these.",
    "added": "They belong to a layer that the model got after this optimizer was given all of its"
    " parameters: nothing moves these.",
    "stale": "The optimizer was given these tensors, and the program computes with others: they"
    " were replaced after the optimizer was made.",
    "dead-relu": "Every input of the rectifier is negative, so its output is 0 and its slope is 0."
    " No gradient passes, so nothing can bring the inputs back.",
    "saturated": "The function is flat where its inputs lie: its slope there is exactly 0.",
    "zero-op": "The op is piecewise constant, so its derivative is 0 everywhere.",
    "overwritten": "The values were overwritten before the loss read them; their gradient is 0.",
    "masked": "None of the values that depend on these parameters was chosen.",
    "left-out": "The loss takes the other values and not theirs: they are multiplied by a 0 that is"
    " the same at every step, or lie outside of the slice.",
    "zero-weight": "The other factor of the product is exactly 0, and so is the derivative.",
    "unknown": "Every element of the gradient is exactly 0.",
}
LABELS = {
    "array": "the graph ends here",
    "detach": "the graph ends here",
    "no_grad": "no graph is recorded in here",
    "constant": "normalises each element by itself",
    "function": "goes into a Function whose backward returns None",
    "sampled": "draws a sample",
    "nearest": "picks the nearest pixel",
    "integer": "the graph ends here",
    "number": "the graph ends here",
    "rewrapped": "a new leaf is made of this",
    "unused": "defined here, never called",
    "unregistered": "is not where `parameters()` looks",
    "replaced": "was given the parameters that were there before",
    "added": "was given what the model had until then",
    "stale": "was given tensors that the model no longer has",
    "unreached": "the last that is made of them",
    "differentiated": "only derivatives of this are read",
    "dead-relu": "all inputs are negative",
    "saturated": "flat at all its inputs",
    "zero-op": "has slope 0 everywhere",
    "overwritten": "replaces the values",
    "zero-weight": "times exactly 0",
}
CURES = {
    "array": "compute this with torch: numpy knows no gradient, and the way back ends there",
    "detach": "drop the `.detach()` (or `.data`) on the way to the loss",
    "no_grad": "run the part that has to learn outside of `no_grad`",
    "constant": "normalise over more than one element, or leave the norm out",
    "function": "return their gradient in the Function's backward",
    "sampled": "draw with `rsample()`, or as `mean + std * torch.randn_like(mean)`; a discrete draw"
    " needs a straight-through or a score-function estimator",
    "nearest": "interpolate with `bilinear`",
    "integer": "use a differentiable form: `softmax` for `argmax`, a sum of sigmoids for a"
    " rank, a float for the cast",
    "number": "keep the tensor: leave out `.item()` and `.tolist()` until it is printed",
    "rewrapped": "use the computed value as it is, without `nn.Parameter(...)` around it",
    "unused": "call the layer in `forward`, or delete it",
    "unreached": "add what is computed from them to the loss, or delete it",
    "differentiated": "leave it, or let the loss read the value itself as well",
    "unregistered": "hold them in an `nn.ModuleList`, `nn.ModuleDict` or `nn.Parameter`",
    "replaced": "give the optimizer the new parameters with `add_param_group`, or make it anew",
    "added": "give the optimizer the new parameters with `add_param_group`, or make it afterwards",
    "stale": "make the optimizer after the model has its final parameters",
    "left-out": "weigh them with more than 0, let the slice reach them, or delete their layers",
    "zero-op": "pass the gradient straight through: `x + (x.round() - x).detach()`",
    "overwritten": "write into a copy, or combine the values instead of replacing them",
}
