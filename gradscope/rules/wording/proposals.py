"""What a request is called, and what it looks like in code: the one place that words it."""

from __future__ import annotations

from typing import assert_never

from gradscope.facts import (
    AllowUnused,
    AverageLoss,
    BoundSchedule,
    ClearAfterStep,
    ClearGradients,
    ClipNorm,
    ComputeAfterUpdate,
    ComputeAnew,
    CopyBeforeWriting,
    CopyLeaf,
    CopyWhenSaved,
    Descend,
    DetachCarried,
    DetachUse,
    DifferentiateBy,
    DivideLoss,
    FillMemory,
    FindUnused,
    Fix,
    HookBackward,
    KeepGraph,
    KeepNorm,
    KeepScaler,
    LowerRate,
    MoveClipping,
    OutOfPlace,
    Reattach,
    ReduceLoss,
    ScaleLoss,
    SetOption,
    SlowSchedule,
    StepAfterBackward,
    StepAtTheEnd,
    StepBeforeClearing,
    StepWhereCleared,
    TameSlope,
    Thaw,
    Unsaturated,
    UpdateLater,
    WiderWeights,
    WithoutGrad,
    text_of,
)
from gradscope.facts.requests import OfRefusals, Plain
from gradscope.ops.display import spelled
from gradscope.rules.wording import titles
from gradscope.rules.wording.dead_gradient_words import WORDS
from gradscope.rules.wording.phrases import listed


def proposed(request: Plain) -> Fix:
    """The fix that a request stands for, before anything is known of the source."""
    match request:
        case LowerRate():
            return _slower(request)
        case SetOption(name=name, old=old, new=new):
            title = f"lower the {name.replace('_', ' ')} from {text_of(old)} to {new:g}"
            return Fix("lower-lr", title, "unsafe", f"{name}={new:g}", request=request)
        case BoundSchedule():
            return _bounded(request)
        case ClearGradients(clearing):
            title = "clear the gradients before each backward"
            code = "\n".join(clearing.lines) if clearing is not None else ""
            return Fix("graph", title, "unsafe", code, request=request)
        case StepBeforeClearing():
            title = "clear the gradients before backward or after the step, and not between them"
            return Fix("graph", title, "unsafe", request=request)
        case StepAfterBackward():
            title = "step after each backward"
            return Fix("graph", title, "unsafe", "optimizer.step()", request=request)
        case ClearAfterStep():
            title = "clear the gradients after the step, and not before each backward"
            return Fix("graph", title, "unsafe", request=request)
        case StepAtTheEnd():
            title = "step after the last pass of an epoch too"
            return Fix("graph", title, "unsafe", request=request)
        case HookBackward():
            title = "have autograd call it: by a hook on the result, or in an autograd.Function"
            code = "out = x.view_as(x)\nout.register_hook(self.backward)\nreturn out"
            return Fix("backward-rewrite", title, "unsafe", code, request=request)
        case Unsaturated():
            title = "raise the log of the opposite label instead: it is steep where this is flat"
            code = "-torch.nn.functional.logsigmoid(logits)  # for log(1 - sigmoid(logits))"
            return Fix("stable-op", title, "unsafe", code, request=request)
        case StepWhereCleared():
            title = "step where the gradients are cleared, once they are added up"
            return Fix("graph", title, "unsafe", request=request)
        case SlowSchedule():
            title = "let the schedule last as long as the training"
            return Fix("graph", title, "unsafe", request=request)
        case KeepScaler():
            title = "let the scaler keep the scale that it finds"
            return Fix("loss-scaling", title, "unsafe", request=request)
        case WiderWeights(dtype):
            title = f"hold the parameters in float32, and compute in {dtype} by autocast"
            code = f"with torch.autocast(device, torch.{dtype}):\n    loss = ..."
            return Fix("dtype", title, "unsafe", code, request=request)
        case AverageLoss(total):
            title = f"average the {total.terms:,} terms of the loss"
            return Fix("graph", title, "unsafe", "loss.mean()", request=request)
        case Descend():
            return Fix("graph", "subtract the gradient", "unsafe", request=request)
        case DivideLoss(passes=passes):
            title = f"divide the loss by the {passes} passes"
            return Fix("graph", title, "unsafe", f"(loss / {passes}).backward()", request=request)
        case ClipNorm():
            return _clipped(request)
        case MoveClipping(unscale, function, bound, summed):
            title = "unscale the gradients before they are clipped"
            call = f"torch.nn.utils.{function}(parameters, {text_of(bound)})"
            code = f"scaler.unscale_(optimizer)\n{call}"
            if not unscale:
                title = "clip between backward and the step"
                if summed:
                    title = "clip once, right before the step"
                code = f"{call}\noptimizer.step()"
            return Fix("clip-norm", title, "unsafe", code, request=request)
        case KeepNorm():
            return _sized(request)
        case FillMemory(op):
            code = f"torch.{op.replace('empty', 'zeros')}(...)"
            title = "allocate memory that is filled with 0"
            return Fix("init", title, "unsafe", code, request=request)
        case ScaleLoss():
            title = "scale the loss before backward, and the gradients back before the step"
            code = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"
            return Fix("loss-scaling", title, "unsafe", code, request=request)
        case Reattach(reason):
            return Fix("graph", WORDS[reason].cure, "unsafe", request=request)
        case CopyBeforeWriting():
            title = "write into a copy, with autograd looking on"
            return Fix("graph", title, "unsafe", request=request)
        case TameSlope():
            return Fix("epsilon", titles.tamed(), "unsafe", request=request)
        case _:
            return _allowed(request)


def _allowed(request: OfRefusals) -> Fix:
    """What autograd does not refuse."""
    match request:
        case OutOfPlace():
            title = "compute a new tensor, and leave the one that was saved as it is"
        case CopyWhenSaved(call):
            title = f"let `{spelled(call.op)}` keep a copy of its own"
        case DetachCarried(carried):
            title = f"detach `{carried.name}` once backward has run"
        case DetachUse(name=name):
            title = f"detach `{name}` where the loss that is not to train it reads it"
        case ComputeAnew():
            title = "compute it in each turn of the loop"
        case KeepGraph():
            title = "keep the graph for the second backward: `retain_graph=True` in the first"
        case UpdateLater():
            title = "update the parameters once both backward passes have run"
        case ComputeAfterUpdate():
            title = "compute the second loss after the update"
        case WithoutGrad():
            title = "write into the leaf under `torch.no_grad()`"
        case CopyLeaf(name):
            title = f"write into a copy of `{name}`"
        case ReduceLoss():
            title = "differentiate one number: the mean"
        case FindUnused():
            title = "let it look for unused parameters: `find_unused_parameters=True`"
        case Thaw(modules):
            title = f"let {listed(modules)} require gradients again"
        case DifferentiateBy(name):
            title = f"ask for the gradient of `{name}`"
        case AllowUnused():
            title = "let that gradient be None: `allow_unused=True`"
        case _:
            assert_never(request)
    return Fix("graph", title, "unsafe", request=request)


def _slower(request: LowerRate) -> Fix:
    if request.old is None or request.new is None:
        return Fix("lower-lr", "lower the learning rate", "unsafe", request=request)
    title = titles.slower(request.old, request.new)
    return Fix("lower-lr", title, "unsafe", f"lr={request.new:g}", request=request)


def _bounded(request: BoundSchedule) -> Fix:
    if request.high is None:
        title, code = "keep the schedule from going below 0", "lambda step: max(0.0, ...)"
        return Fix("lower-lr", title, "unsafe", code, request=request)
    rate = f"{request.high:.2g}"
    title = f"let the schedule stop at lr {rate}, half of what it was when the loss began to grow"
    code = f"lambda step: min({request.factor or rate}, ...)"
    return Fix("lower-lr", title, "unsafe", code, request=request)


def _clipped(request: ClipNorm) -> Fix:
    bound = "1.0" if request.max_norm is None else text_of(request.max_norm, 3)
    title = f"clip the total gradient norm to {bound} before each step"
    code = f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={bound})"
    return Fix("clip-norm", title, "unsafe", code, request=request)


def _sized(request: KeepNorm) -> Fix:
    if request.fades:
        title = "use an activation whose slope is near 1, and the initialisation that goes with it"
        code = 'self.act = nn.ReLU()\nnn.init.kaiming_normal_(self.lin.weight, nonlinearity="relu")'
    else:
        init = "kaiming_normal_" if request.axis == "depth" else "orthogonal_"
        title = "start from weights that keep the norm of what passes through them"
        code = f"torch.nn.init.{init}(weight)"
    return Fix("init", title, "unsafe", code, request=request)
