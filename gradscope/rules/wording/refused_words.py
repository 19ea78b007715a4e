"""What is said of each thing that autograd refuses."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from gradscope.facts import Call, Location, NoGradient, plural, refusals
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading.after_refusal import (
    is_carried,
    is_for_others,
    is_once,
    kept_apart,
    updated_at,
)
from gradscope.rules.wording import phrases
from gradscope.rules.wording.dead_gradient_words import WORDS
from gradscope.rules.wording.leaf_words import LEAF_WORDS
from gradscope.rules.wording.refusal_parts import Places, Words, named
from gradscope.rules.wording.step_words import STEP_WORDS


def words(refusal: refusals.Refusal) -> Words:
    return _WORDS[type(refusal)](refusal)


def _changed(one: refusals.ChangedInPlace) -> Words:
    if one.saved is None:
        return Words(
            "a tensor that backward needs was changed in place",
            "Which op saved it, and which one changed it, was not seen.",
            "backward met it here",
            evidence={"reason": "changed"},
        )
    saver = phrases.spelled(one.saved.op)
    first = one.writes[0] if one.writes else None
    writer = _writer(first)
    evidence: dict[str, object] = {
        "reason": "changed",
        "saved_by": one.saved.op,
        "role": one.role,
        "name": one.name,
        "shape": list(one.shape),
        "changed_by": [write.optimizer or write.op for write in one.writes],
    }
    size = f"a tensor of shape {list(one.shape)}, changed {plural(len(one.writes), 'time')}"
    numbers = (f"{size} after it was saved",)
    why = (
        f"`{saver}` needs {named(one.name, 'this tensor')} for its backward as it was when it ran."
        f" {writer[:1].upper()}{writer[1:]} has changed it since then, so that autograd refuses to"
        " compute a gradient with it."
    )
    saved_at = (_at(one.saved), f"`{saver}` saved it here")
    later = ((_at(write), f"changed again by {_writer(write)}") for write in one.writes[1:])
    if one.shared is None or not is_carried(one.shared):
        what = f"`{one.name}`, which" if one.name else "a tensor that"
        return Words(
            f"{writer} changes {what} `{saver}` saved for its backward",
            why,
            "changed here, after it was saved",
            updated_at(one) if first is not None else _at(one.saved),
            (first or one.saved).op,
            (saved_at, *later),
            evidence,
            numbers,
        )
    carried = one.shared
    value = named(carried.name, "a value")
    return Words(
        f"backward needs {named(one.name, 'a tensor')} as it was before {writer} changed it:"
        f" {value} still holds the graph of an earlier step",
        f"{why} The graph that needs it is an earlier step's: {value} of that step was read in this"
        " one with all that it was computed from.",
        "what this gives is read in the next step too",
        _at(carried.made),
        _op(carried.made),
        (
            saved_at,
            (_at(carried.used), "read here, in a later step"),
            (_at(first), f"{writer} changes it here"),
            *later,
        ),
        {**evidence, "carried": carried.name},
        numbers,
    )


def _writer(write: refusals.Write | None) -> str:
    if write is None:
        return "an op"
    if write.optimizer:
        return f"the step of `{write.optimizer}`"
    if write.module:
        return f"`{write.module}`"
    return "an assignment" if has(write.op, Trait.REPLACES) else f"`{phrases.spelled(write.op)}`"


def _freed(one: refusals.GraphFreed) -> Words:
    shared = one.shared
    evidence: dict[str, object] = {"reason": "freed", "name": shared.name}
    why = "Backward frees what the ops had saved as soon as it has used it."
    if shared.made is None:
        return Words(
            "a part of the graph was run through by an earlier backward, which freed it",
            f"{why} Which part an earlier one has used was not seen.",
            "backward met it here",
            evidence=evidence,
        )
    freed: Places = ((shared.backward, "an earlier backward ran through it, and freed it"),)
    made, name = phrases.spelled(shared.made.op), named(shared.name, "a value")
    place: Location | None = _at(shared.made)
    reader: Places = ()
    if shared.constant:
        why = f"{WORDS[NoGradient.CONSTANT].why} And backward frees the graph of {name}, through"
        why += " which the loss runs once more."
        headline = "the loss reads a gradient that was asked for without `create_graph=True`, and"
        headline += f" runs through the graph of {name} once more"
        label, place = WORDS[NoGradient.CONSTANT].label, shared.backward
        reader = ((_at(shared.made), "the loss runs through this as well"),)
    elif is_carried(shared):
        why += (
            f" This step reads {name} of an earlier one with the whole graph that computed it:"
            " backward would run through the earlier step once more."
        )
        headline = f"{name} carries the graph of an earlier step, which backward has freed, into"
        headline += " this one"
        label = f"what `{made}` gives is read in the next step too"
        reader = ((_at(shared.used), "read here"),)
        if shared.dropped is not None:
            reader = ((place, label), *reader)
            label, place = "nobody keeps what this gives: the tensor stays as it is", shared.dropped
        elif (kept := kept_apart(shared)) is not None:
            label, place = "kept with its graph, and read in the next step", kept
            reader = ((_at(shared.made), f"`{made}` gives it"), *reader)
    elif is_once(shared, one.raised_at):
        why += f" Here {name} is computed once, and each turn of the loop runs backward through it."
        if shared.trained:
            why += " What it is made of has changed meanwhile: kept, it would be that of before."
        if shared.anew:
            why += f" The turn reads the same parameters anew: {name} may be a constant."
        headline = f"{name} is computed once, and backward runs through it more than once"
        label, place = "computed once", shared.once
    else:
        why += f" Here {name} is a part of both losses, and the first one has run through it."
        headline = f"two backward passes run through the graph of {name}"
        label = "both losses are computed from this"
        reader = ((_at(shared.first_use), "the first loss reads it here"),)
        if shared.reader is not None and is_for_others(shared):
            reader = ((place, label), *reader)
            label, place = "the second loss reads it with its graph", shared.reader
    return Words(
        headline,
        why,
        label,
        place,
        shared.made.op,
        (*(freed if place != shared.backward else ()), *reader),
        evidence | {"carried": is_carried(shared), "trained": shared.trained},
        (f"{plural(len(shared.calls), 'op')} in the part that both run through",),
    )


_ENDS = {
    NoGradient.NO_GRAD: "it was computed where none is recorded",
    NoGradient.CONSTANT: "it reads a gradient that was asked for without `create_graph=True`",
    NoGradient.NUMBER: "it was made from a Python number",
    NoGradient.CHECKPOINT: "no input of a reentrant checkpoint requires grad",
    NoGradient.FROZEN: "nothing in it requires grad",
    NoGradient.LATE: "it was computed before anything required one",
    NoGradient.LEAFLESS: "nothing in it requires grad",
}


def _switched_off(one: refusals.WithoutGraph) -> Words:
    return Words(
        "the loss has no graph: gradients were switched off, and stayed so",
        "A call that no `with` ends, as one of `torch.set_grad_enabled`, is a switch for the whole"
        " process: it holds beyond the function that makes it, until something switches gradients"
        " on again. What was computed since has no graph.",
        "switches gradients off for all that follows",
        one.location,
        evidence={"reason": one.reason, "switched_off": True},
        numbers=("0 leaves that the loss depends on",),
        raised="autograd raised here",
    )


def _without_graph(one: refusals.WithoutGraph) -> Words:
    if one.switch:
        return _switched_off(one)
    words, op = WORDS[one.reason], _op(one.call)
    what = _ENDS.get(one.reason, f"`{phrases.spelled(op)}` cuts it off")
    is_number = one.reason is NoGradient.NUMBER  # which has no backward that could raise
    raised = "Python raised here" if is_number else "autograd raised here"
    counted = "0 leaves that the loss depends on"
    if one.reason is NoGradient.INFERENCE:
        headline = "an op with a graph reads a tensor that was made in inference mode"
        return Words(
            headline, words.why, words.label, one.location, op, evidence={"reason": one.reason}
        )
    if one.apart and one.reason is NoGradient.FROZEN:
        return Words(
            "the loss has no graph: no parameter took part in it",
            "All parameters require a gradient, and the loss was computed from none of them: a"
            " value that something starts from, or a branch for a case like this one, has come"
            " through as it is.",
            raised,
            evidence={"reason": one.reason},
            numbers=(counted,),
        )
    if one.frozen and one.reason is NoGradient.FROZEN:
        count, names = plural(len(one.frozen), "parameter"), phrases.listed(one.frozen)
        counted = f"{count} without `requires_grad`: {names}"
    why = f"{words.why} So nothing that could learn is left in the loss."
    if one.turns:
        why += (
            f" An optimizer holds {phrases.listed(one.to_learn)}, and has stepped with them before."
        )
    return Words(
        f"the loss has no graph: {what}",
        why,
        words.label if one.location is not None else raised,
        one.location,
        op,
        ((one.related, "runs without a graph"),),
        {"reason": one.reason, "frozen": list(one.frozen)},
        (counted,),
        raised,
    )


def _view(one: refusals.ViewWritten) -> Words:
    name, by = named(one.name, "a view"), phrases.spelled(_op(one.maker))
    maker = f"`{by}`" if one.maker is not None else "one function"
    return Words(
        f"{name} is one of the views that {maker} gives, and is changed in place",
        f"The views of {maker} share one memory and one node of the graph: autograd could not tell"
        " the others, or the function's own backward, of the write. A new tensor it can.",
        "writes into one of several views",
        evidence={"reason": "view", "name": one.name},
        numbers=("several views of one memory",),
    )


def _computed_again(one: refusals.ComputedAgain) -> Words:
    shapes = f"of shape {list(one.before or ())} and then {list(one.after or ())}"
    return Words(
        "what is checkpointed has computed other tensors when it ran again in backward",
        "`checkpoint` keeps what goes in, and runs the forward a second time in backward, which has"
        " to compute the same. It changes something that it reads: a cache that it fills, a list, a"
        " counter, a flag; or the program has changed something since, such as a module's mode.",
        "runs again in backward",
        one.location,
        evidence={"reason": "computed-again"},
        numbers=(f"the first tensor that differs was {shapes}",) if one.before else (),
    )


def _not_scalar(one: refusals.NotScalar) -> Words:
    name, shape = named(one.name, "what is differentiated"), list(one.shape)
    op = phrases.spelled(_op(one.made))
    return Words(
        f"{name} has the shape {shape}, and backward needs one number",
        f"Backward starts with the gradient 1 of a single number. {name} was never summed or"
        " averaged.",
        f"`{op}` gives a tensor of shape {shape}" if op else "no single number",
        one.location,
        _op(one.made),
        ((_at(one.made), f"`{op}` made it here"),),
        {"reason": "not-scalar", "name": one.name, "shape": shape},
        (f"{math.prod(one.shape):,} numbers where one is needed",),
    )


def _complex(one: refusals.ComplexLoss) -> Words:
    name, op = named(one.name, "what is differentiated"), phrases.spelled(_op(one.made))
    return Words(
        f"{name} is a complex number, and backward needs a real one",
        "A loss is made smaller, and of two complex numbers none is smaller. What measures the size"
        " of one is its magnitude, `abs`: the square of a complex number is complex again.",
        f"`{op}` gives a complex number" if op else "no real number",
        _at(one.made),
        _op(one.made),
        evidence={"reason": "complex", "name": one.name},
        numbers=("1 complex number where a real one is needed",),
    )


def _not_twice(one: refusals.NotTwice) -> Words:
    what = phrases.listed(one.functions) if one.functions else f"`{phrases.spelled(one.op)}`"
    how = "is marked with `once_differentiable`" if one.functions else "has no derivative in torch"
    return Words(
        f"the backward of {what} {how}, and the loss needs one",
        "The loss contains a gradient (`create_graph=True`): its own gradient leads through the"
        " backward of each op between, which has to have a derivative as well.",
        "to be differentiated once" if one.marks else "its backward has no derivative",
        next(iter(one.marks), _at(one.made)),
        _op(one.made) or one.op,
        ((_at(one.made), "runs here"),) if one.marks else (),
        {"reason": "not-twice", "op": one.op, "functions": list(one.functions)},
        ("1 derivative where the loss needs 2",),
    )


def _saved_no_tensor(one: refusals.SavedNoTensor) -> Words:
    return Words(
        f"`{one.function}.forward` saves {phrases.listed(one.names)} for its backward, which"
        f" {'are no tensors' if len(one.names) > 1 else 'is no tensor'}",
        "`save_for_backward` keeps tensors, and sees to it that they are not changed until then."
        " Anything else belongs on `ctx` itself.",
        "saves what is no tensor",
        one.location,
        evidence={"reason": "saved-no-tensor", "names": list(one.names)},
        numbers=(plural(len(one.names), "argument") + " that is no tensor",),
        raised="torch raised here",
    )


def _not_used(one: refusals.NotUsed) -> Words:
    name = named(one.given.name if one.given else one.name, "one of the tensors")
    why = "No op between it and the result has read it: another tensor was read in its place, such"
    why, label = (
        f"{why} as a copy or a view that was made afterwards.",
        "asks for a gradient that there is not",
    )
    if one.reason:
        why, label = WORDS[one.reason][:2]
    if one.read is not None and one.original:
        op = phrases.spelled(one.read.op)
        why = f"It was computed from `{one.original}`, as by a step of an inner loop, and `{op}`"
        why, label = f"{why} reads that in its place.", f"reads `{one.original}` itself"
    elif one.read is not None and one.copied:
        op = phrases.spelled(one.read.op)
        why = f"It is a copy of what `{op}` has read, or of a part of that. What is computed from"
        why, label = f"{why} the original knows nothing of the copy.", "reads the original"
    elif one.read is not None:
        why = f"It is a view. What reads the tensor that {name} is a part of does not read the view"
        why, label = f"{why}, which is a tensor of its own to autograd.", "reads the whole of it"
    if one.given is not None:
        why = f"{name} was computed from `{one.given.original}`, and this call is given that in its"
        why = f"{why} place: the result depends on the one, and not on the other."
        label = f"reads `{one.given.original}` itself"
    is_used = one.reason is NoGradient.LEAFLESS
    return Words(
        f"the gradient of {name} is asked for, and it does not require one"
        if is_used
        else f"the result does not depend on {name}, whose gradient is asked for",
        why,
        label,
        one.location,
        _op(one.call),
        (
            (one.related, "runs without a graph"),
            (_at(one.read), f"`{phrases.spelled(_op(one.read))}` reads it here"),
            (one.raised_at if one.read or one.given else None, "asks for its gradient"),
        ),
        {"reason": one.reason or NoGradient.UNUSED, "name": one.name},
        ("0 ops between it and the result",) if not one.reason else (),
    )


def _at(one: Call | refusals.Write | None) -> Location | None:
    return one.location if one is not None else None


def _op(call: Call | None) -> str:
    return call.op if call is not None else ""


_WORDS: Mapping[type[refusals.Refusal], Callable[[Any], Words]] = {
    refusals.ChangedInPlace: _changed,
    refusals.GraphFreed: _freed,
    refusals.WithoutGraph: _without_graph,
    refusals.ViewWritten: _view,
    refusals.NotScalar: _not_scalar,
    refusals.ComputedAgain: _computed_again,
    refusals.NotUsed: _not_used,
    refusals.ComplexLoss: _complex,
    refusals.SavedNoTensor: _saved_no_tensor,
    refusals.NotTwice: _not_twice,
    **LEAF_WORDS,
    **STEP_WORDS,
}
