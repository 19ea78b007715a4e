"""What is said of each step that an optimizer, a GradScaler or DistributedDataParallel refuses."""

from collections.abc import Callable, Mapping
from typing import Any

from gradscope.facts import number, plural, refusals
from gradscope.rules.wording import phrases
from gradscope.rules.wording.refusal_parts import Words, named


def _layout(one: refusals.LayoutRefused) -> Words:
    layout = "sparse" if one.sparse else "dense"
    count = len(one.names) or 1
    why = (
        "An embedding that is made with `sparse=True` gives a gradient of the rows alone that a"
        f" batch has read. `{one.optimizer}` moves every row here, by what it keeps of it or by"
        " weight decay, and takes no sparse gradient for that."
        if one.sparse
        else f"`{one.optimizer}` moves the rows alone that a batch has read. It is told which by a"
        " sparse gradient, which an embedding gives that is made with `sparse=True`, and no other"
        " layer."
    )
    return Words(
        f"`{one.optimizer}` refuses the {layout} gradient of"
        f" {phrases.listed(one.names) or 'a parameter'}",
        why,
        f"gives a {layout} gradient" if one.layers else "is given its parameters here",
        one.layers[0] if one.layers else one.location,
        "step",
        ((one.location if one.layers else None, "is given its parameters here"),),
        evidence={"reason": "layout", "optimizer": one.optimizer, "names": list(one.names)},
        numbers=(f"{count} of {plural(one.held, 'gradient')} {layout}",),
        raised="the step raised here",
    )


def _past_scaler(one: refusals.PastScaler) -> Words:
    scale, optimizer = number(one.scale, 6), one.update.optimizer
    return Words(
        f"`{optimizer}` steps past the GradScaler, along gradients that are {scale} times too"
        " large",
        f"The scaler has multiplied the loss, and so every gradient, by {scale}. It divides them"
        " again where it takes the step itself, and looks for inf there: `update` finds that it was"
        " never asked to.",
        "steps without the scaler",
        one.update.location,
        "step",
        evidence={"reason": "past-scaler", "optimizer": optimizer, "scale": one.scale},
        numbers=(f"loss scale {scale}",),
        raised="the scaler raised here",
    )


def _of_another(one: refusals.StateOfAnother) -> Words:
    name, shape, kept = named(one.name, "a parameter"), list(one.shape), list(one.kept)
    order = (
        "All shapes that it keeps are those of its parameters, in another order: as long as"
        " neighbours have the same shape, a state is even taken for that of another without a word."
        if one.in_order
        else "Its parameters are others than those of the optimizer that saved its state."
    )
    made, loaded = (one.location, "is given its parameters here"), (one.loaded, "loads the state")
    told, other = (loaded, made) if one.loaded and not one.in_order else (made, loaded)
    return Words(
        f"`{one.optimizer}` keeps `{one.key}` of shape {kept} for {name}, which has shape {shape}",
        "A state that is loaded goes to the parameters by their order alone, the first to the first"
        f" one that the optimizer was given, and their shapes are not compared. {order}",
        told[1],
        told[0],
        "step",
        (other,),
        evidence={
            "reason": "state-of-another",
            "optimizer": one.optimizer,
            "name": one.name,
            "shape": shape,
            "key": one.key,
            "kept": kept,
            "in_order": one.in_order,
        },
        numbers=(f"`{one.key}` {kept}, the parameter {shape}",),
        raised="the step raised here",
    )


def _unscaled_twice(one: refusals.UnscaledTwice) -> Words:
    return Words(
        "the gradients are to be divided by the scale of the GradScaler twice before one step",
        "`unscale_` divides all that has been added up in the gradients, once for each step. After"
        " a further backward it would divide the sum of the earlier ones a second time, and the"
        " scaler refuses: where gradients are accumulated, they are divided, and clipped, before"
        " the step alone.",
        "divides again",
        evidence={"reason": "unscaled-twice"},
        raised="the scaler raised here",
    )


def _unreduced(one: refusals.Unreduced) -> Words:
    names, count = one.parameters, len(one.parameters)
    return Words(
        f"DistributedDataParallel waits for {plural(count, 'gradient')} that the last backward did"
        f" not give: {phrases.listed(names)}",
        "It adds up the gradients of all ranks once every parameter has one. A forward that leaves"
        " a layer out gives that layer none, and the next step cannot begin.",
        "was not used in the last step",
        one.location,
        evidence={"reason": "unreduced", "parameters": list(names)},
        numbers=(f"{plural(count, 'parameter')} without a gradient",),
    )


def _complex_setting(one: refusals.ComplexSetting) -> Words:
    sign = "-" if one.imaginary < 0 else "+"
    value = f"{number(one.real, 3)} {sign} {number(abs(one.imaginary), 3)}i"
    return Words(
        f"`{one.optimizer}` is to step with `{one.name}` = {value}, a complex number",
        "Python gives a complex number for a negative one to a power with a fraction. A schedule"
        " that falls to 0 by a power, as `(1 - t / last) ** 0.9`, does so once `t` is past `last`:"
        " it counts fewer steps than there are.",
        "its base is negative" if one.location is not None else "steps with it",
        one.location,
        "step",
        evidence={"reason": "complex-setting", "optimizer": one.optimizer, "name": one.name},
        numbers=(f"`{one.name}` = {value}",),
        raised="the step raised here",
    )


STEP_WORDS: Mapping[type[refusals.Refusal], Callable[[Any], Words]] = {
    refusals.PastScaler: _past_scaler,
    refusals.UnscaledTwice: _unscaled_twice,
    refusals.StateOfAnother: _of_another,
    refusals.LayoutRefused: _layout,
    refusals.Unreduced: _unreduced,
    refusals.ComplexSetting: _complex_setting,
}
