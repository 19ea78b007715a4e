"""What a request is called, and what it looks like in code: the one place that words it. Those
that `rules/fixes` makes for an op are worded there, with the op's own names."""

from __future__ import annotations

from gradscope.facts import Fix, text_of
from gradscope.facts import requests as ask
from gradscope.ops.display import spelled
from gradscope.rules.wording import titles
from gradscope.rules.wording.dead_gradient_words import WORDS
from gradscope.rules.wording.phrases import listed

_Words = tuple[str, str, str]  # the kind of fix, its title, its code


def proposed(request: ask.Request) -> Fix:
    """The fix that a request stands for, before anything is known of the source."""
    if isinstance(request, ask.Allow):
        return Fix("graph", _allowed(request), "unsafe", request=request)
    kind, title, code = _of_training(request) or _of_gradient(request)
    return Fix(kind, title, "unsafe", code, request=request)


def _of_gradient(request: ask.Request) -> _Words:
    """Those of the op, and of what autograd computes with it."""
    match request:
        case ask.Unsaturated():
            title = "raise the log of the opposite label instead: it is steep where this is flat"
            code = "-torch.nn.functional.logsigmoid(logits)  # for log(1 - sigmoid(logits))"
            return "stable-op", title, code
        case ask.FillMemory(op):
            code = f"torch.{op.replace('empty', 'zeros')}(...)"
            return "init", "allocate memory that is filled with 0", code
        case ask.TameSlope():
            return "epsilon", "let no gradient through next to the singular point", ""
        case ask.AddToDiagonal(size, x):
            code = f"{x} + {size:g} * torch.eye({x}.shape[-1], dtype={x}.dtype, device={x}.device)"
            return "epsilon", f"add {size:g} to the diagonal", code
        case ask.FitNumber(unfit):
            return "dtype", f"write the largest number that {unfit.dtype} holds", ""
        case ask.IgnoreTarget(value):
            return "data", f"leave the targets that are {value} out", f"ignore_index={value}"
        case ask.Reattach(reason):
            return "graph", WORDS[reason].cure, ""
        case ask.CopyBeforeWriting():
            return "graph", "write into a copy, with autograd looking on", ""
        case ask.HookBackward():
            title = "have autograd call it: by a hook on the result, or in an autograd.Function"
            code = "out = x.view_as(x)\nout.register_hook(self.backward)\nreturn out"
            return "backward-rewrite", title, code
    raise TypeError(request)


def _of_training(request: ask.Request) -> _Words | None:
    match request:
        case ask.LowerRate(old, new):
            if old is None or new is None:
                return "lower-lr", "lower the learning rate", ""
            return "lower-lr", titles.slower(old, new), f"lr={new:g}"
        case ask.SetOption(_, name, old, new):
            title = f"lower the {name.replace('_', ' ')} from {text_of(old)} to {new:g}"
            return "lower-lr", title, f"{name}={new:g}"
        case ask.BoundSchedule(high=None):
            code = "lambda step: max(0.0, ...)"
            return "lower-lr", "keep the schedule from going below 0", code
        case ask.BoundSchedule(high=high):
            title = f"let the schedule stop at lr {high:.2g}, half of what it was when the loss"
            code = f"lambda step: min({request.factor or f'{high:.2g}'}, ...)"
            return "lower-lr", f"{title} began to grow", code
        case ask.ClearGradients(clearing):
            code = "\n".join(clearing.lines) if clearing is not None else ""
            return "graph", "clear the gradients before each backward", code
        case ask.StepBeforeClearing():
            title = "clear the gradients before backward or after the step, and not between them"
            return "graph", title, ""
        case ask.StepAfterBackward():
            return "graph", "step after each backward", "optimizer.step()"
        case ask.ClearAfterStep():
            return "graph", "clear the gradients after the step, and not before each backward", ""
        case ask.StepAtTheEnd():
            return "graph", "step after the last pass of an epoch too", ""
        case ask.StepWhereCleared():
            return "graph", "step where the gradients are cleared, once they are added up", ""
        case ask.SlowSchedule():
            return "graph", "let the schedule last as long as the training", ""
        case ask.KeepScaler():
            return "loss-scaling", "let the scaler keep the scale that it finds", ""
        case ask.ScaleLoss():
            title = "scale the loss before backward, and the gradients back before the step"
            code = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"
            return "loss-scaling", title, code
        case ask.WiderWeights(dtype):
            title = f"hold the parameters in float32, and compute in {dtype} by autocast"
            return "dtype", title, f"with torch.autocast(device, torch.{dtype}):\n    loss = ..."
        case ask.AverageLoss(total):
            return "graph", f"average the {total.terms:,} terms of the loss", "loss.mean()"
        case ask.Descend():
            return "graph", "subtract the gradient", ""
        case ask.DivideLoss(passes=passes):
            code = f"(loss / {passes}).backward()"
            return "graph", f"divide the loss by the {passes} passes", code
        case ask.ClipNorm():
            title = f"clip the total gradient norm to {request.bound} before each step"
            code = f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={request.bound})"
            return "clip-norm", title, code
        case ask.MoveClipping(unscale, function, bound, summed):
            call = f"torch.nn.utils.{function}(parameters, {text_of(bound)})"
            if unscale:
                title = "unscale the gradients before they are clipped"
                return "clip-norm", title, f"scaler.unscale_(optimizer)\n{call}"
            title = "once, right before the step" if summed else "between backward and the step"
            return "clip-norm", f"clip {title}", f"{call}\noptimizer.step()"
        case ask.KeepNorm(fades=True):
            title = "use an activation whose slope is near 1, and the initialisation that goes with"
            init = 'nn.init.kaiming_normal_(self.lin.weight, nonlinearity="relu")'
            return "init", f"{title} it", f"self.act = nn.ReLU()\n{init}"
        case ask.KeepNorm(axis):
            init = "kaiming_normal_" if axis == "depth" else "orthogonal_"
            title = "start from weights that keep the norm of what passes through them"
            return "init", title, f"torch.nn.init.{init}(weight)"
    return None


def _allowed(request: ask.Allow) -> str:
    """What autograd does not refuse."""
    match request:
        case ask.OutOfPlace():
            return "compute a new tensor, and leave the one that was saved as it is"
        case ask.CopyWhenSaved(call):
            return f"let `{spelled(call.op)}` keep a copy of its own"
        case ask.DetachCarried(carried):
            return f"detach `{carried.name}` once backward has run"
        case ask.DetachUse(name=name):
            return f"detach `{name}` where the loss that is not to train it reads it"
        case ask.ComputeAnew():
            return "compute it in each turn of the loop"
        case ask.KeepGraph():
            return "keep the graph for the second backward: `retain_graph=True` in the first"
        case ask.UpdateLater():
            return "update the parameters once both backward passes have run"
        case ask.ComputeAfterUpdate():
            return "compute the second loss after the update"
        case ask.WithoutGrad():
            return "write into the leaf under `torch.no_grad()`"
        case ask.CopyLeaf(name):
            return f"write into a copy of `{name}`"
        case ask.ReduceLoss():
            return "differentiate one number: the mean"
        case ask.FindUnused():
            return "let it look for unused parameters: `find_unused_parameters=True`"
        case ask.Thaw(modules):
            return f"let {listed(modules)} require gradients again"
        case ask.DifferentiateBy(name):
            return f"ask for the gradient of `{name}`"
        case ask.AllowUnused():
            return "let that gradient be None: `allow_unused=True`"
    raise TypeError(request)
