"""What autograd refused: the facts that lie behind its exception, gathered when the program ends.

torch raises plain RuntimeErrors, without a type, a code or the tensor that they are about: which of
its checks failed is told by the text alone, and `_CHECKS` is the one place that reads it. All else
comes from the graph, which is alive as long as the exception is, and from what was noted before.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointError

from gradscope.facts import Location, NoGradient, refusals
from gradscope.record import graph
from gradscope.record.context import RunContext
from gradscope.record.definitions import (
    definition,
    frozen_at,
    leaf_at,
    made_at,
)
from gradscope.record.events.provenance import storage_key
from gradscope.record.grad_modes import only_inference
from gradscope.record.graph import consumers, leaf_ids, up, withheld
from gradscope.record.held import alive
from gradscope.record.names import Names
from gradscope.record.refusals import given, no_leaf, passed_over, second_time, several, steps
from gradscope.record.refusals.exceptions import (
    Raised,
    chain,
    gradient_read_at,
    stepping,
    written_at,
)
from gradscope.record.refusals.notes import Notes
from gradscope.record.refusals.sharing import as_update, as_write, calls, shared
from gradscope.record.sites import place_of
from gradscope.record.sizes.cuts import Cut
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.reasons import cut_upstream, explained
from gradscope.record.tracing import unobserved

_KINDS = (RuntimeError, TypeError, ValueError, AttributeError, AssertionError)
Ask = Callable[[Raised], refusals.AnyRefusal | None]


def refusal_of(
    error: BaseException, notes: Notes, context: RunContext, flow: Flow | None
) -> refusals.AnyRefusal | None:
    """What autograd refused, if that ends the program or led to its end. `flow` is that of the
    forward that runs, or whose backward raised."""
    for one in chain(error):
        if (ask := _asking(one)) is not None:
            return ask(Raised.by(one, notes, context, flow))
    return None


def _asking(error: BaseException) -> Ask | None:
    """What asks what an exception was about; None of one that nobody knows."""
    if isinstance(error, _KINDS):
        known = next((ask for text, ask in _CHECKS if text in str(error)), None)
        if known is not None:
            return known
    if isinstance(error, CheckpointError):
        return second_time.computed_again
    if isinstance(error, AttributeError) and error.name == "backward":
        return _of_number
    is_step = isinstance(error, RuntimeError) and stepping(error) is not None
    return steps.refused if is_step else None


def _changed(raised: Raised) -> refusals.AnyRefusal:
    """A saved tensor was written. Backward meets the youngest node first."""
    known = (
        (node, role, tensor)
        for node in raised.youngest_first
        for role, tensor in withheld(node)
        if tensor is not None
    )
    found = next(known, None)
    if found is None:
        return _changed_within(raised)
    node, role, tensor = found
    others = {one for one, _, _ in known} | {node}
    after = [one for one in raised.notes.updates if one.seq > node._sequence_nr()]
    moved = {id(leaf) for one in after for leaf in one.parameters}
    return refusals.ChangedInPlace(
        **raised.at,
        saved=raised.context.call(node),
        role=role,
        name=raised.name(tensor),
        shape=tuple(tensor.shape),
        writes=_since(raised, node._sequence_nr(), tensor),
        above=calls(raised, up(others, raised.nodes)),
        apart=raised.notes.is_apart(after, leaf_ids(raised.nodes), moved),
        cleared=any(
            id(leaf) in moved and (leaf.grad is None or not bool(leaf.grad.any()))
            for leaf in graph.leaves(raised.nodes)
        ),
        shared=shared(raised, others),
    )


def _changed_within(raised: Raised) -> refusals.AnyRefusal:
    """What an op in place has saved of its own result, where that is a view: its node stands
    inside of one for the whole memory, and shows nothing."""
    for node in (one for one in raised.youngest_first if graph.node_name(one) == "CopySlices"):
        before = [one for one in raised.notes.writes if one.seq <= node._sequence_nr()]
        made = next((one for one in reversed(before) if one.recorded), None)
        if made is None or not _saves_its_result(made.op):
            continue
        later = [one for one in raised.notes.writes if one.seq > made.seq]
        later = [one for one in later if one.storage.cdata == made.storage.cdata]
        if later:
            return refusals.ChangedInPlace(
                **raised.at,
                saved=raised.context.call(node),
                role="result",
                shape=graph.shape_of(node),  # of the whole
                writes=tuple(dict.fromkeys(as_write(one, lasts=False) for one in later)),
                above=calls(raised, up({node}, raised.nodes)),
            )
    return refusals.ChangedInPlace(**raised.at)


def _since(raised: Raised, seq: int, tensor: torch.Tensor) -> tuple[refusals.Write, ...]:
    """What has written the memory of a tensor since a node of that number was made."""
    key, note = storage_key(tensor), raised.context.journal.call_of(seq)
    lasts = key in map(storage_key, graph.leaves(raised.nodes))
    # What an op in place saves of its own result, it saves once that is written.
    own = (seq + 1, note.info.name, note.user) if note is not None else None
    found: list[tuple[int, refusals.Write]] = [
        (one.seq, as_write(one, lasts=lasts))
        for one in raised.notes.writes
        if one.seq > seq and one.storage.cdata == key and (one.seq, one.op, one.site) != own
    ]
    found += [
        (one.seq, as_update(one))
        for one in raised.notes.updates
        if one.seq > seq and key in map(storage_key, one.parameters)
    ]
    return tuple(dict.fromkeys(write for _, write in sorted(found, key=lambda pair: pair[0])))


def _freed(raised: Raised) -> refusals.AnyRefusal:
    freed = {node for node in raised.nodes if any(tensor is None for _, tensor in withheld(node))}
    return refusals.GraphFreed(**raised.at, shared=shared(raised, freed) or refusals.Shared(None))


def _without_graph(raised: Raised) -> refusals.AnyRefusal:
    names = raised.context.names
    names.look(raised.frame)
    bare = [root for root in raised.roots if root.grad_fn is None and not root.requires_grad]
    held = _frozen_as_a_whole(raised)
    learnt = {id(leaf) for one in raised.notes.updates for leaf in one.parameters}
    cut = _cut(raised, bare)
    has_learnt = bool(held & learnt) and cut["reason"] is not NoGradient.CHECKPOINT
    cut = {"reason": NoGradient.FROZEN} if has_learnt else cut
    frozen = [names.owners[key] for key, one in names.parameters.items() if not one.requires_grad]
    return refusals.WithoutGraph(
        **raised.at,
        **cut,
        frozen=tuple(owner.name for owner in frozen),
        apart=bool(names.parameters) and not frozen,
        to_learn=_modules_of(names, held),
        turns=tuple(raised.places) if has_learnt else (),
        switch=raised.switch if cut.get("location") in raised.switch[:1] else (),
    )


def _cut(raised: Raised, values: Sequence[torch.Tensor]) -> dict[str, Any]:
    """What cuts one of them off, as the fields of a refusal."""
    if (off := raised.notes.left_on or next(iter(raised.switch), None)) is not None:
        return {"reason": NoGradient.NO_GRAD, "location": off}
    if (flow := raised.flow) is not None:
        cut = next(filter(None, (cut_upstream(flow, one) for one in values)), None)
        if cut is not None:
            return _explained(cut)
        site = next(filter(None, map(flow.early.of, raised.leaves_held())), None)
        if site is not None:
            return {"reason": NoGradient.LATE, "location": place_of(site)}
    if (frame := raised.frame) is None:
        return {"reason": NoGradient.FROZEN}
    leaf = leaf_at(frame.f_code, frame.f_locals)
    if leaf is not None:
        return {"reason": NoGradient.LEAFLESS, "location": leaf}
    return {"reason": NoGradient.FROZEN, "location": frozen_at(frame.f_code)}


def _explained(cut: Cut) -> dict[str, Any]:
    return dict(zip(("reason", "call", "location", "related"), explained(cut), strict=True))


def _in_inference(raised: Raised) -> refusals.AnyRefusal:
    cut = _cut(raised, [one for one in raised.tensors_held() if one.is_inference()])
    if cut["reason"] is not NoGradient.NO_GRAD:
        place = only_inference(raised.frame.f_code) if raised.frame is not None else None
        cut = {"location": place or raised.place}
    cut["reason"] = NoGradient.INFERENCE
    return refusals.WithoutGraph(**raised.at, **cut)


def _frozen_as_a_whole(raised: Raised) -> set[int]:
    """The parameters of optimizers, by id, of which all are frozen; not where these are all
    that there are."""
    parameters = raised.context.names.parameters
    known = {key for key, leaf in parameters.items() if not leaf.requires_grad}
    held = set().union(*(one for one in raised.notes.waiting(()) if one <= known))
    return held if held < parameters.keys() else set()


def _modules_of(names: Names, held: set[int]) -> tuple[str, ...]:
    """The largest modules of which these are all parameters."""
    owners = (names.whole(key, held, learning=False) for key in held)
    modules = {id(owner.path[-1][1]) for owner in owners if owner is not None}
    return tuple(sorted(re.sub(r"\.(\d+)", r"[\1]", names.modules[one]) for one in modules))


def _leaf_written(raised: Raised) -> refusals.AnyRefusal | None:
    name, leaf = written_at(raised)
    trained = isinstance(leaf, torch.nn.Parameter) or getattr(leaf, "grad", None) is not None
    return refusals.LeafWritten(**raised.at, name=name, trained=trained) if name else None


def _no_leaf(raised: Raised) -> refusals.AnyRefusal | None:
    """`None` was taken for a gradient."""
    found = gradient_read_at(raised)
    if found is None:
        return given.without_gradient(raised)
    name, tensor, updated = found
    refusal = refusals.NoLeaf(**raised.at, name=name, location=updated, updated=True)
    if updated is not None or tensor.grad_fn is None:
        return refusal if updated is not None else None
    known = {*map(id, raised.tensors_held()), *raised.context.names.parameters}
    made = raised.context.call(tensor.grad_fn)
    return replace(
        refusal,
        location=made.location if made is not None else None,
        updated=False,
        nameless=known.isdisjoint(leaf_ids(consumers([tensor.grad_fn]))),
    )


def _past_scaler(raised: Raised) -> refusals.AnyRefusal | None:
    update = next(reversed(raised.notes.updates), None)
    scaler = next(alive(torch.amp.GradScaler), None)
    if update is None or scaler is None:
        return None
    scale = float(scaler.get_scale())
    return refusals.PastScaler(**raised.at, update=as_update(update), scale=scale)


def _of_number(raised: Raised) -> refusals.AnyRefusal | None:
    """A loss that is a Python number, where one was read out of what has a graph."""
    cuts = raised.flow.cuts if raised.flow is not None else ()
    read = [one for one in cuts if one.reason is NoGradient.NUMBER and one.lost]
    if not isinstance(getattr(raised.error, "obj", None), Real) or not read:
        return None
    return refusals.WithoutGraph(**raised.at, **_explained(read[-1]))


def _complex(raised: Raised) -> refusals.AnyRefusal | None:
    root = next((one for one in raised.roots if one.is_complex()), None)
    if root is None:
        return None
    made = raised.context.call(root.grad_fn)
    return refusals.ComplexLoss(**raised.at, name=raised.name(root), made=made)


def _view_written(raised: Raised) -> refusals.AnyRefusal | None:
    name, view = written_at(raised)
    maker = raised.context.call(getattr(view, "grad_fn", None))
    return refusals.ViewWritten(**raised.at, name=name, maker=maker) if name else None


def _unreduced(raised: Raised) -> refusals.AnyRefusal:
    names = raised.context.names
    owners = [
        names.owners[key]
        for key, leaf in names.parameters.items()
        if leaf.requires_grad and leaf.grad is None
    ]
    return refusals.Unreduced(
        **raised.at,
        parameters=tuple(owner.name for owner in owners),
        location=definition(owners[0].path)[0] if owners else None,
    )


def _not_scalar(raised: Raised) -> refusals.AnyRefusal | None:
    root = next((one for one in raised.roots if one.numel() != 1), None)
    if root is None:
        return None
    made, location = several.left_so(raised, root)
    name, shape = raised.name(root), tuple(root.shape)
    return refusals.NotScalar(**raised.at, name=name, shape=shape, made=made, location=location)


def _not_used(raised: Raised) -> refusals.AnyRefusal | None:
    reached = leaf_ids(raised.nodes)
    for one in raised.inputs:
        if id(one) in reached or (one.grad_fn is not None and one.grad_fn in raised.nodes):
            continue
        found = refusals.NotUsed(**raised.at, name=raised.name(one), reason=None)
        if not one.requires_grad:
            return replace(found, reason=NoGradient.LEAFLESS, location=_made_at(raised, one))
        leaves = graph.leaves(raised.nodes)
        others = [leaf for leaf in leaves if not isinstance(leaf, torch.nn.Parameter)]
        instead = raised.name(others[0]) if len(others) == 1 else ""
        found = replace(found, instead=instead)
        cut = _cut(raised, raised.roots)
        if cut["reason"] not in (NoGradient.FROZEN, NoGradient.LEAFLESS):
            return replace(found, **cut)
        return passed_over.told(raised, one, found)
    return None


def _made_at(raised: Raised, tensor: torch.Tensor) -> Location | None:
    """Where it was computed, as the function that was to differentiate by it or one of its
    callers knows."""
    made = (
        made_at(frame.f_code, raised.context.names.name(tensor, frame) or "", place)
        for frame, place in zip(raised.frames, raised.places, strict=True)
    )
    return next(filter(None, made), None)


def _told(kind: type[refusals.AnyRefusal]) -> Ask:
    """Of what needs no more than its place."""
    return lambda raised: kind(**raised.at)


# A part of what torch says, by its checks (torch/csrc/autograd: saved_variable.cpp, engine.cpp,
# VariableTypeUtils.h, torch/autograd/__init__.py).
_CHECKS: tuple[tuple[str, Ask], ...] = (
    ("has been modified by an inplace operation", _changed),
    ("Trying to backward through the graph a second time", _freed),
    ("does not require grad and does not have a grad_fn", _without_graph),
    ("Inference tensors cannot be saved for backward", _in_inference),
    ("grad can be implicitly created only for scalar outputs", _not_scalar),
    ("leaf Variable that requires grad is being used in an in-place", _leaf_written),
    ("is a view and is being modified inplace", _view_written),
    ("Expected to have finished reduction in the prior iteration", _unreduced),
    ("appears to not have been used in the graph", _not_used),
    ("One of the differentiated Tensors does not require grad", _not_used),
    ("No inf checks were recorded prior to update", _past_scaler),  # GradScaler's own
    ("unscale_() has already been called on this optimizer", _told(refusals.UnscaledTwice)),
    ("grad can be implicitly created only for real scalar outputs", _complex),
    ("can't optimize a non-leaf Tensor", no_leaf.computed_given),
    ("optimizer got an empty parameter list", no_leaf.nothing_given),
    ("appear in more than one parameter group", no_leaf.given_twice),
    ("marked with @once_differentiable", second_time.of_function),
    ("derivative for ", second_time.of_op),
    ("support the deepcopy protocol", no_leaf.copied_with_graph),
    ("can require gradients", _told(refusals.WholeNumbers)),
    ("Can't call numpy() on Tensor that requires grad", no_leaf.read_as_array),
    ("you can only change requires_grad flags of leaf variables", no_leaf.switched_off),
    ("(torch.nn.Parameter or None expected)", no_leaf.parameter_replaced),
    ("save_for_backward can only save variables", no_leaf.saved_no_tensor),
    ("NoneType", _no_leaf),  # Python's own, of a gradient that is not there
)


def _saves_its_result(op: str) -> bool:
    """Whether the backward of an op in place needs what it gave, as one number shows."""
    try:
        with unobserved(), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = getattr(torch.ops.aten, op)(torch.ones((), requires_grad=True))
    except (AttributeError, RuntimeError):
        return False  # it takes more than that
    return "result" in graph.roles(result.grad_fn)
