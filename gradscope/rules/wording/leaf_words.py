"""What is said of each thing that is no leaf, or was taken for none."""

from collections.abc import Callable, Mapping
from typing import Any

from gradscope.facts import NoGradient, plural, refusals
from gradscope.rules.wording import phrases
from gradscope.rules.wording.dead_gradient_words import WORDS
from gradscope.rules.wording.refusal_parts import Words, named


def _leaf(one: refusals.LeafWritten) -> Words:
    name = named(one.name, "a leaf")
    how = (
        "An update of a parameter is no part of the graph: it belongs under `torch.no_grad()`."
        if one.trained
        else "What is to be differentiated has to be written into a copy."
    )
    return Words(
        f"{name} is a leaf that requires grad, and is changed in place",
        f"Its gradient would be that of a value which is gone. {how}",
        "writes into a leaf",
        evidence={"reason": "leaf", "name": one.name, "trained": one.trained},
        numbers=("a parameter, or a leaf with a gradient" if one.trained else "an input",),
    )


def _no_leaf(one: refusals.NoLeaf) -> Words:
    name = named(one.name, "a tensor")
    if one.updated:
        headline = f"{name} is no leaf any more: its update has given it another tensor"
        why = (
            f"Backward leaves gradients in leaves. This line computes a new tensor and calls it"
            f" {name}: the leaf that was to learn keeps its values and its gradient, under no name."
        )
        label = "gives the name another tensor"
    else:
        headline = f"{name} is no leaf: backward leaves no gradient in what an op gives"
        why = (
            f"Backward leaves gradients in leaves, such as parameters. {name} was computed from"
            " one, and its `grad` is None unless it is asked to keep it."
        )
        label = "gives what is no leaf"
    evidence: dict[str, object] = {"reason": "no-leaf", "name": one.name, "updated": one.updated}
    raised = "its gradient is None here"
    return Words(headline, why, label, one.location, evidence=evidence, raised=raised)


def _computed_given(one: refusals.ComputedGiven) -> Words:
    name = named(one.name, "a tensor")
    op = phrases.spelled(one.made.op) if one.made is not None else ""
    return Words(
        f"`{one.optimizer}` is given {name}, which is computed"
        + (f" by `{op}`" if op else "")
        + ", and no leaf",
        "An optimizer moves leaves: tensors that nothing has computed. What an op gives of a leaf"
        " that requires a gradient hands that gradient on, and keeps none.",
        f"`{op}` gives a tensor of its own" if op else "is no leaf",
        one.made.location if one.made is not None else None,
        one.made.op if one.made is not None else "",
        evidence={"reason": "computed", "name": one.name, "optimizer": one.optimizer},
        numbers=("1 tensor with a graph",),
        raised="is given to the optimizer here",
    )


def _nothing_given(one: refusals.NothingGiven) -> Words:
    evidence: dict[str, object] = {"reason": "nothing", "optimizer": one.optimizer}
    headline, numbers = f"`{one.optimizer}` is given no parameters", "0 parameters"
    raised = label = "is given nothing to train"
    why = "None was found: a model has parameters where its layers are attributes of it."
    if one.consumed:
        headline += ": the iterator is at its end"
        why = (
            "`parameters()`, `filter` and a generator hand out each parameter once. Something has"
            " read this one before, and for the optimizer nothing was left."
        )
    elif one.unregistered:
        words, count = WORDS[NoGradient.UNREGISTERED], len(one.unregistered)
        headline += (
            f": {plural(count, 'tensor')} that should learn {'are' if count > 1 else 'is'} held"
            " where `parameters()` does not look"
        )
        why, label = words.why, words.label
        numbers += f", {plural(count, 'tensor')} in plain attributes"
        evidence["unregistered"] = list(one.unregistered)
    return Words(
        headline,
        why,
        label,
        one.location,
        evidence=evidence,
        numbers=(numbers,),
        raised=raised,
    )


def _given_twice(one: refusals.GivenTwice) -> Words:
    count = plural(len(one.names), "parameter")
    return Words(
        f"`{one.optimizer}` is given {count} twice, in two of its groups:"
        f" {phrases.listed(one.names)}",
        "Each step would move them twice, by the settings of one group and then by those of the"
        " other.",
        "is given them in two groups",
        evidence={"reason": "given-twice", "optimizer": one.optimizer, "names": list(one.names)},
        numbers=(f"{count} in the groups {one.whole} and {one.part}, counted from 0",),
    )


def _copied_with_graph(one: refusals.CopiedWithGraph) -> Words:
    return Words(
        f"`{one.name}` is to be copied with the module that keeps it, and has a graph",
        "A deep copy of a module copies all that it holds. What a forward has left there has the"
        " graph of that pass behind it, which cannot be copied, and which stays in memory.",
        "keeps what was computed, with its graph",
        one.location,
        evidence={"reason": "copied-with-graph", "name": one.name, "module": one.module},
        numbers=("1 tensor with a graph",),
        raised="is copied here",
    )


def _whole_numbers(one: refusals.WholeNumbers) -> Words:
    return Words(
        "whole numbers are to have a gradient",
        "A gradient says what a small change does, and a whole number, or a truth value, has no"
        " small change. torch makes whole numbers of numbers that are written without a point.",
        "gives no floating-point numbers",
        evidence={"reason": "whole-numbers"},
        numbers=("1 tensor without floating-point numbers",),
        raised="torch raised here",
    )


def _read_as_array(one: refusals.ReadAsArray) -> Words:
    name = named(one.name, "a tensor")
    return Words(
        f"NumPy is to read {name}, which has a graph",
        "What NumPy computes of the values, autograd could not follow: the gradient would be lost"
        " without a word. `detach` says that none is wanted.",
        "reads a tensor with a graph",
        evidence={"reason": "array", "name": one.name},
        numbers=("1 tensor that requires grad",),
        raised="torch raised here",
    )


def _switched_off(one: refusals.SwitchedOff) -> Words:
    name = named(one.name, "a tensor")
    return Words(
        f"{name} is computed, and is told to require no gradient",
        "Whether what an op gives requires a gradient follows from its operands. `detach` gives the"
        " same values without a graph.",
        "is no leaf",
        evidence={"reason": "switched-off", "name": one.name},
        numbers=("1 tensor with a graph",),
        raised="torch raised here",
    )


def _parameter_replaced(one: refusals.ParameterReplaced) -> Words:
    return Words(
        f"a tensor is to take the place of the parameter `{one.name}`",
        "The optimizer, and whatever else holds the parameter, would keep the old one. A module"
        " lets nothing but another parameter into its place. Values are written into the one that"
        " is there.",
        "is no parameter",
        evidence={"reason": "parameter-replaced", "name": one.name},
        numbers=("1 tensor that is no parameter",),
        raised="torch raised here",
    )


LEAF_WORDS: Mapping[type[refusals.Refusal], Callable[[Any], Words]] = {
    refusals.LeafWritten: _leaf,
    refusals.NoLeaf: _no_leaf,
    refusals.ComputedGiven: _computed_given,
    refusals.NothingGiven: _nothing_given,
    refusals.GivenTwice: _given_twice,
    refusals.CopiedWithGraph: _copied_with_graph,
    refusals.WholeNumbers: _whole_numbers,
    refusals.ReadAsArray: _read_as_array,
    refusals.SwitchedOff: _switched_off,
    refusals.ParameterReplaced: _parameter_replaced,
}
