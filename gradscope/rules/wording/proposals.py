"""What a fix is called, as advice and as a patch alike, and what it looks like in code: the one
place that words it."""

from collections.abc import Callable, Mapping

from gradscope.facts import Fix, NoGradient, text_of
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.ops.display import spelled
from gradscope.ops.edges import Nature
from gradscope.rules.wording.dead_gradient_words import BOTH_AT_ZERO, WORDS
from gradscope.rules.wording.phrases import listed

# Titles of what is done to an op, `{op}` as it is spelled; `{what}` is an operand in a sentence.
AWAY_FROM_ZERO = "keep {what} away from 0"
BEHIND = "add the epsilon to the result of `{op}`"
BETWEEN = "keep {what} between 0 and 1 by {by}"
BOUNDED = "bound `{name}` to +-{bound:g} for all that read it, so that `{op}` stays in range"
CONDITIONED = "keep {what} well conditioned"
WITHOUT_ROWS = "leave out the rows of `{name}` that are not finite"
CLEANED = "put 0 where `{mask}` says that `{name}` is bad, before it is computed with"
COUNTED = "keep the count {what} at 1 or more"
AVERAGED = "let `{name}` average numbers, without their graphs"
EMPTY = "let the result be 0 where {what} is 0"
NOT_ABOVE = "let the result be 0 where {what} is not above 0"
FOR_ALL = "let `{name}` be 1 where it is 0, for all that read it"
BRANCHES = "compute each branch of `where` for what it is chosen for"
HARMLESS = "give `{op}` a harmless operand where its result is thrown away"
INSIDE = "keep {what} inside the domain of `{op}`"
IN_LOGARITHMS = "compute `{text}` as its logarithm from the start"
IN_RANGE = "bound {what} so that `{op}` stays in range"
BY_LOGITS = "give `{kind}` the logits that its probabilities are made of"
SQUASHED = "take the slope of the `tanh` itself, before it is scaled"
FINITE = "mask with a large finite number"
REST = "let one group have all that is not in the other one"
LEFT_OUT = "let the masked elements count as 0 in the `{op}`"
LIMIT = "take the quotient right beside `{name}` = 0, where it has a limit"
NOTHING = "divide by 1 where {what} is 0"
POSITIVE = "keep {what} positive by softplus{instead}"
RECURRENCE = "carry {names} along as logarithms"
REPLACED = "replace the operand of `{op}` by {number} where its result is not finite"
RESTORED = "give `{op}` a harmless operand there, and the result the value that it had"
SELECTED = "take the elements at which `{condition}`"
SLOWER = "lower the learning rate from {old:g} to {new:g}"
AT_THE_END = "step after the last pass of an epoch too"
NOT_FLOORED = "divide by `/`: `//` gives 0 below 1"
COUNTED_FROM_ONE = "count from 1, so that the first factor is above 0"
SWITCHED_ON = "leave gradients switched on, but where `torch.no_grad()` ends with its block"
WITHIN = "switch gradients off for `{name}` alone: `@torch.no_grad()`"
WITHIN_BLOCK = "switch gradients off for these lines alone: `with torch.no_grad():`"
STANDARDISED = (
    "bring the inputs to mean 0 and spread 1, and by the same numbers all else that the model reads"
)
STABLE = "compute it in one stable step: `{text}`"
LOGARITHM = "learn `{name}` as its logarithm"
STARTED = "start `{name}` at 1"
MADE_STABLY = "compute what `{op}` is given in a stable form"
WIDER = "compute `{op}` in {dtype}"
WIDE_STATE = "keep {state} in {dtype}, and compute what follows in it"

_Words = tuple[str, str, str]  # the kind of fix, its title, its code


def proposed(request: ask.Request) -> Fix:
    """The fix that a request stands for, before anything is known of the source. Those that
    `rules/fixes` makes for an op are worded there, with the op's own names."""
    words = _of_fields(request)
    if words is None:
        kind, title, code = _WORDS[type(request)]
        words = kind, title.format(request), code.format(request)
    return Fix(words[0], words[1], "unsafe", words[2], request=request)


def guarded(kind: str, what: str, op: str, edge: Edge | None = None) -> str:
    """The title of a guard that is an epsilon or a clamp-domain, `what` the operand in a
    sentence: of an op that overflows, a domain has no end there."""
    template = AWAY_FROM_ZERO if kind == "epsilon" else INSIDE
    if edge is not None and edge.nature is Nature.OVERFLOW:
        template = IN_RANGE
    elif edge is not None and edge.cause == "degenerate-decomposition":
        template = CONDITIONED
    return template.format(what=what, op=spelled(op))


def _of_fields(request: ask.Request) -> _Words | None:
    """The words where they hang on more than the text of a field."""
    match request:
        case ask.FillMemory(op):
            code = f"torch.{op.replace('empty', 'zeros')}(...)"
            return "init", "allocate memory that is filled with 0", code
        case ask.FillParameter(name=name):
            owner, _, own = name.rpartition(".")
            title = f"fill `{name}` too, where `{owner}` is initialised"
            return "init", title, f"torch.nn.init.{request.filler}(module.{own})"
        case ask.AddBehind(made):
            op = spelled(made.op)
            return "epsilon", BEHIND.format(op=op), f"{op}(x) + 1e-6"
        case ask.RaiseAbove(made, least):
            op = spelled(made.op)
            title = f"keep the result of `{op}` above {least:g}"
            return "clamp-domain", title, f"{op}(x) + {least:g}"
        case ask.GiveScores(op, logarithms=True):
            return "stable-op", f"give the loss log-probabilities: `log_{op}`", ""
        case ask.GiveScores(op):
            return "stable-op", f"give the loss what goes into `{op}`, without that", ""
        case ask.Reattach(NoGradient.ZERO_WEIGHT as reason):
            return "init", WORDS[reason].cure, ""
        case ask.Reattach(reason) | ask.MakeOptimizerAnew(reason):
            return "graph", WORDS[reason].cure, ""
        case ask.KeepGraph(detach=ask.DetachUse(name=name)):
            title = (
                f"weigh the first loss by `{name}` as a number, and keep the graph for the second"
            )
            return "graph", title, ""
        case ask.KeepGraph(learnt=True):
            return "graph", WORDS[NoGradient.CONSTANT].cure, ""
        case ask.CopyWhenSaved(call):
            return "graph", f"let `{spelled(call.op)}` keep a copy of its own", ""
        case ask.UpdateLater(write) if not write.optimizer:
            return "graph", "write into the parameters once backward has run", ""
        case ask.DetachCarried(carried, emptied=True):
            return "graph", f"empty `{carried.name}` once backward has run", ""
        case ask.Thaw(modules):
            return "graph", f"let {listed(modules)} require gradients again", ""
        case ask.LowerRate(old, new) if old is not None and new is not None:
            return "lower-lr", SLOWER.format(old=old, new=new), f"lr={new:g}"
        case ask.ClearGradients(clearing):
            code = "\n".join(clearing.lines) if clearing is not None else ""
            return "graph", "clear the gradients before each backward", code
        case ask.MoveClipping(unscale, function, bound, summed):
            clip = f"torch.nn.utils.{function}(parameters, {text_of(bound)})"
            if unscale:
                title = "unscale the gradients before they are clipped"
                return "clip-norm", title, f"scaler.unscale_(optimizer)\n{clip}"
            title = "once, right before the step" if summed else "between backward and the step"
            return "clip-norm", f"clip {title}", f"{clip}\noptimizer.step()"
        case ask.DecayRate(schedule) if schedule.gamma == 0:
            return "graph", "let the schedule multiply the learning rate by more than 0", ""
        case ask.SetMode(kept) if kept.mode == "eval":
            return "graph", "call `train()` before the training goes on", f"{kept.model}.train()"
        case ask.KeepNorm(fades=True):
            title = "use an activation whose slope is near 1, and the initialisation that goes with"
            init = 'nn.init.kaiming_normal_(self.lin.weight, nonlinearity="relu")'
            return "init", f"{title} it", f"self.act = nn.ReLU()\n{init}"
        case ask.KeepNorm(axis):
            init = "kaiming_normal_" if axis == "depth" else "orthogonal_"
            title = "start from weights that keep the norm of what passes through them"
            return "init", title, f"torch.nn.init.{init}(weight)"
    return None


def _of_kind(kind: str) -> Callable[..., _Words]:
    return lambda title, code="": (kind, title, code)


_data, _dtype, _graph, _init, _scaling, _stable = map(
    _of_kind, ("data", "dtype", "graph", "init", "loss-scaling", "stable-op")
)
# Of the others; `{0}` is the request.
_WORDS: Mapping[type[ask.Request], _Words] = {
    ask.ScaleTarget: _data("bring the targets from {0.low:g} and {0.high:g} to 0 and 1"),
    ask.AddToDiagonal: (
        "epsilon",
        "add {0.size:g} to the diagonal",
        "{0.name} + {0.size:g} * torch.eye({0.name}.shape[-1], dtype={0.name}.dtype,"
        " device={0.name}.device)",
    ),
    ask.Symmetrize: _stable(
        "make `{0.role}` symmetric: the mean of it and its transpose", "0.5 * (x + x.mT)"
    ),
    ask.ShiftDiagonal: _graph("leave the diagonal unmasked", "torch.triu(mask, diagonal=1)"),
    ask.DivideArrayByOne: _data("divide by 1 where the divisor is 0", "x / np.where(y == 0, 1, y)"),
    ask.WithoutNorm: _init("leave the layer that starts at 0 without `weight_norm`"),
    ask.ZeroGain: _init("let its norm start at 0, and not its direction"),
    ask.DrawWeights: _init("start from numbers drawn at random", "0.01 * torch.randn(n, m)"),
    ask.MakeEach: _init("make a module of its own for each place", "[Head(n) for _ in range(4)]"),
    ask.ScaleByInputs: _init(
        "divide the weights that are computed by the root of the number of inputs",
        "w * (2 / x.shape[-1]) ** 0.5",
    ),
    ask.LinearGrowth: (
        "clamp-domain",
        "let it grow linearly, by `softplus` in the place of `exp`",
        "torch.nn.functional.softplus(x)",
    ),
    ask.Unsaturated: _stable(
        "raise the log of the opposite label instead: it is steep where this is flat",
        "-torch.nn.functional.logsigmoid(logits)  # for log(1 - sigmoid(logits))",
    ),
    ask.TameSlope: ("epsilon", "let no gradient through next to the singular point", ""),
    ask.StartFactors: _init(BOTH_AT_ZERO.cure, "nn.init.zeros_(self.up.weight)"),
    ask.FitNumber: _dtype("write the end of the range of {0.unfit.dtype}"),
    ask.FitCast: _dtype(
        "end the values with the range of {0.dtype} before they are cast",
        "x.clamp(min=torch.finfo(torch.{0.dtype}).min)",
    ),
    ask.FillByMask: (
        "masked-branch",
        "fill in the inf where the mask is set: 0 times it is NaN",
        'scores.masked_fill(mask, float("-inf"))',
    ),
    ask.MatchShapes: _data("give both the same shape", "prediction.squeeze(-1)"),
    ask.AlongClasses: _stable("normalise along dimension {0.dim}", "dim={0.dim}"),
    ask.TakeSigmoid: _stable(
        "take a sigmoid: of one score, it is the probability", "torch.sigmoid(score)"
    ),
    ask.TakeLogits: _stable(
        "compute the loss of logits, which these are",
        "torch.nn.functional.binary_cross_entropy_with_logits(logits, target)",
    ),
    ask.GiveLogits: _stable(
        "give the distribution logits, whose slope does not end",
        "Categorical(logits=z)  # for Categorical(probs=z.softmax(-1))",
    ),
    ask.LeaveOutRectifier: _graph(
        "leave the rectifier away where the model gives its output, or use one that is never flat",
        "return self.out(h)  # for F.relu(self.out(h))",
    ),
    ask.BoundIndex: _data(
        "let the last index hold the upper end as well", "index.clamp(max=x.shape[{0.dim}] - 1)"
    ),
    ask.LeaveOutNothing: (
        "guard-empty",
        "go on without it where there is nothing",
        "if not x.numel():\n    continue",
    ),
    ask.IgnoreTarget: _data("leave the targets that are {0.value} out", "ignore_index={0.value}"),
    ask.DropLastBatch: _data("leave the last batch out, which is smaller", "drop_last=True"),
    ask.Standardise: _data(STANDARDISED, "x = (x - x.mean(0)) / x.std(0)"),
    ask.TakeScores: _stable("take `cross_entropy`, which normalises the scores first"),
    ask.NormaliseScores: _stable(
        "give the loss log-probabilities: `log_softmax`", "scores.log_softmax(-1)"
    ),
    ask.Unmark: _graph("let its backward be differentiated: without `once_differentiable`"),
    ask.DifferentiableForm: _graph("compute it in a form whose backward has a derivative"),
    ask.CopyWhenKept: _graph("keep a copy of its own"),
    ask.CopyBeforeWriting: _graph("write into a copy, with autograd looking on"),
    ask.DifferentiateForward: ("backward-rewrite", "let autograd differentiate the forward", ""),
    ask.HookBackward: (
        "backward-rewrite",
        "have autograd call it: by a hook on the result, or in an autograd.Function",
        "out = x.view_as(x)\nout.register_hook(self.backward)\nreturn out",
    ),
    # What autograd does not refuse
    ask.RunOnce: _graph("run it once, and keep what backward needs: without `checkpoint`"),
    ask.OutOfPlace: _graph("compute a new tensor, and leave the old one as it is"),
    ask.DetachCarried: _graph("detach `{0.carried.name}` once backward has run"),
    ask.DetachUse: _graph("detach `{0.name}` where the loss that is not to train it reads it"),
    ask.ProjectLeaf: _graph("bound the parameter itself, under `torch.no_grad()`"),
    ask.KeepDetached: _graph("keep what `detach` gives", "h = h.detach()"),
    ask.DetachRead: _graph("detach what an earlier step has left, where it is read"),
    ask.DetachMade: _graph("detach it where it is computed once"),
    ask.ComputeAnew: _graph("compute it in each turn of the loop"),
    ask.KeepGraph: _graph(
        "keep the graph for the second backward: `retain_graph=True` in the first"
    ),
    ask.UpdateLater: _graph("update the parameters once both backward passes have run"),
    ask.ComputeAfterUpdate: _graph("compute the second loss after the update"),
    ask.WithoutGrad: _graph("write into the leaf under `torch.no_grad()`"),
    ask.UpdateInPlace: _graph("write the update into the leaf, under `torch.no_grad()`"),
    ask.LeafAtLast: _graph("make it a leaf once it is computed"),
    ask.RetainGradient: _graph("have backward keep the gradient of `{0.name}`: `retain_grad()`"),
    ask.CopyLeaf: _graph("write into a copy of `{0.name}`"),
    ask.ReduceLoss: _graph("differentiate one number: the mean"),
    ask.FindUnused: _graph("let it look for unused parameters: `find_unused_parameters=True`"),
    ask.SwitchOffWithin: _graph(SWITCHED_ON, "@torch.no_grad()\ndef evaluate(model, data):"),
    ask.KeepWithoutGraph: _graph("keep its values without their graph: `.detach()`"),
    ask.WithFloats: _graph("make floating-point numbers of them", "x = x.float()"),
    ask.DetachForArray: _graph("let NumPy read the values alone: `{0.name}.detach()`"),
    ask.DetachInstead: _graph("cut it off from its graph: `{0.name}.detach()`"),
    ask.WriteIntoParameter: _graph("write the values into `{0.name}`, under `torch.no_grad()`"),
    ask.ByMagnitude: _graph("square the magnitude: `.abs() ** 2`"),
    ask.KeepOnContext: _graph("keep on `ctx` itself what is no tensor"),
    ask.SetSparse: _graph("make the embedding with `sparse={0.sparse}`"),
    ask.DifferentiateBy: _graph("ask for the gradient of `{0.name}`"),
    ask.HandOver: _graph("compute with what was made of `{0.original}`, and not with that itself"),
    ask.GiveInstead: _graph("compute with `{0.given.name}`, whose gradient is asked for"),
    ask.JoinViews: _graph("compute with the tensors whose gradient is asked for"),
    ask.AllowUnused: _graph("let that gradient be None: `allow_unused=True`"),
    # The training
    ask.LowerRate: ("lower-lr", "lower the learning rate", ""),
    ask.CastOperand: _dtype("convert it to {0.wanted}"),
    ask.LeaveOutOfGroup: _graph("leave them out of the group that has more"),
    ask.StartStateAnew: _graph("begin without that state: it is of other parameters"),
    ask.BoundBase: ("clamp-domain", "keep the base of the power at 0 or above", ""),
    ask.StepBeforeClearing: _graph(
        "clear the gradients before backward or after the step, and not between them"
    ),
    ask.StepAfterBackward: _graph("step after each backward", "optimizer.step()"),
    ask.ClearAfterStep: _graph("clear the gradients after the step, and not before each backward"),
    ask.StepAtTheEnd: _graph(AT_THE_END),
    ask.DifferentiateAside: _graph("ask for that one gradient, which adds nothing to others"),
    ask.StepWhereCleared: _graph("step where the gradients are cleared, once they are added up"),
    ask.MoveOnWithSteps: _graph("move the schedule on once for each step of the optimizer"),
    ask.SlowSchedule: _graph("let the schedule last as long as the training"),
    ask.FactorAboveZero: _graph("let the function give a factor above 0 from the start"),
    ask.DecayRate: (
        "lower-lr",
        "let the schedule make the learning rate smaller, and not larger",
        "",
    ),
    ask.WaitForMore: _graph("wait until the value rises no further", 'mode="max"'),
    ask.WaitForLess: _graph("wait until the loss falls no further", 'mode="min"'),
    ask.RateOfOne: _graph("multiply 1 by the rates that the function gives"),
    ask.StepThroughScaler: _scaling(
        "step through the scaler, which divides the gradients by its scale",
        "scaler.step(optimizer)\nscaler.update()",
    ),
    ask.ScaleThisLoss: (
        "loss-scaling",
        "scale this loss as the others",
        "scaler.scale(loss).backward()",
    ),
    ask.UnscaleBeforeStep: _graph(
        "divide by the scale, and clip, where the step is taken",
        "if (i + 1) % accumulate == 0:\n    scaler.unscale_(optimizer)\n    scaler.step(optimizer)",
    ),
    ask.KeepScaler: _scaling("let the scaler keep the scale that it finds"),
    ask.ScaleLoss: _scaling(
        "scale the loss before backward, and the gradients back before the step",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    ask.WidenBound: _dtype("compute it in float32, from what the bound is of", "x.float()"),
    ask.WiderWeights: _dtype(
        "hold the parameters in float32, and compute in {0.dtype} by autocast",
        "with torch.autocast(device, torch.{0.dtype}):\n    loss = ...",
    ),
    ask.WiderParameter: _dtype(
        "hold `{0.name}` in float64", "self.offset = nn.Parameter(offset.double())"
    ),
    ask.AverageLoss: _graph("average the {0.total.terms:,} terms of the loss", "loss.mean()"),
    ask.Descend: _graph("subtract the gradient"),
    ask.TurnSign: _graph("minimise its negative, which does not fall without end"),
    ask.GiveParameters: _graph("give it the parameters that get a gradient"),
    ask.CompleteGroups: _graph("let the groups have all that is to be trained"),
    ask.AddParameters: _graph("give what is left out to the optimizer, or freeze it"),
    ask.DivideLoss: _graph(
        "divide the loss by the {0.passes} passes", "(loss / {0.passes}).backward()"
    ),
    ask.AverageOnce: _graph("do not divide by the number of ranks"),
    ask.SetMode: _graph(
        "call `eval()` before an evaluation, and `train()` after it", "{0.kept.model}.eval()"
    ),
    ask.FollowStatistics: _graph(
        "copy the statistics of BatchNorm along with the weights",
        "for own, other in zip(teacher.buffers(), student.buffers()):\n    own.copy_(other)",
    ),
    ask.LowerMomentum: _graph(
        "give it 1 - momentum: torch weighs the last batch by it",
        "nn.BatchNorm2d(n, momentum=0.01)",
    ),
    ask.DropInTraining: _graph(
        "drop values in train mode alone", "F.dropout(x, p, training=self.training)"
    ),
    ask.WriteAverage: _graph(
        "write the average into the parameter", "target.copy_(tau * online + (1 - tau) * target)"
    ),
    ask.SetEvalAgain: _graph(
        "set what is frozen to eval mode again", "model.train()\nmodel.encoder.eval()"
    ),
    ask.LogTarget: _stable("tell the loss that its target is a logarithm", "log_target=True"),
    ask.KeepAsList: _graph("keep the parameters in a list", "list(model.parameters())"),
    ask.PrefixNames: _graph(
        "give it the names that the module itself has: with `{0.prefix}.` before them",
        'named_parameters(prefix="{0.prefix}")',
    ),
    ask.SetFlag: _graph("set `requires_grad` of the parameters themselves"),
    ask.LoadOtherWay: _graph(
        "load the trained weights into the other module",
        "target.load_state_dict(online.state_dict())",
    ),
    ask.KeepRandomState: _graph(
        "draw the same numbers again", "checkpoint(..., preserve_rng_state=True)"
    ),
    ask.RestoreRandomState: _graph("draw the same numbers again", "torch.set_rng_state(state)"),
    ask.LoadStateOf: _graph(
        "load the state of `{0.other}`", "load_state_dict({0.other}.state_dict())"
    ),
    ask.CopyState: _graph("keep a copy of the state", "copy.deepcopy(model.state_dict())"),
    ask.ClipNorm: (
        "clip-norm",
        "clip the total gradient norm to {0.bound} before each step",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={0.bound})",
    ),
}
