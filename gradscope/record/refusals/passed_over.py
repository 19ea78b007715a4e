"""A tensor that a result does not depend on, though what it was made from was read: the tensor that
it is a view of, or a copy, or the weight that it has updated."""

from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import torch

from gradscope.facts import Call, refusals
from gradscope.record import graph
from gradscope.record.events.provenance import storage_key
from gradscope.record.held import parts_of, reached_from
from gradscope.record.refusals.exceptions import Raised
from gradscope.record.refusals.given import given_instead

_MOST_COMPARED = 1 << 24  # elements
_MOST_PARTS = 64  # of a tensor, that may have been copied


def told(raised: Raised, tensor: torch.Tensor, found: refusals.NotUsed) -> refusals.NotUsed:
    """With what was read in the place of the tensor, and where the innermost function calls that
    which the exception has come through as well; and with the call that is to be given it."""
    found = _with_reader(raised, tensor, found)
    given = given_instead(raised, tensor) if not found.original else None
    return replace(found, given=given, location=given.call) if given is not None else found


def _with_reader(raised: Raised, tensor: torch.Tensor, found: refusals.NotUsed) -> refusals.NotUsed:
    original, read = "", _reader(raised, tensor, copied=False)
    copied = read is None and tensor.grad_fn is None
    if copied:
        read = _reader(raised, tensor, copied=True)
    elif read is None:
        original, read = _updated(raised, tensor)
    if read is None:
        return found
    outermost_first = reversed([*zip(raised.places, raised.frames, strict=True)])
    running = {(place.file, place.function): frame for place, frame in outermost_first}
    common = (at for at in read.frames if (at.file, at.function) in running)
    location = next(common, read.location)
    frame = running.get((location.file, location.function)) if location is not None else None
    return replace(
        found,
        read=read,
        copied=copied,
        original=original,
        holders=tuple(_holders(frame, tensor)) if original and frame is not None else (),
        location=location,
    )


def _holders(frame: FrameType, tensor: torch.Tensor) -> Iterator[str]:
    """The tensor itself, and the lists and dicts that hold it, as a function reaches them."""
    for name, value, _ in reached_from(frame.f_locals):
        parts = parts_of(name, value) if isinstance(value, list | tuple | dict) else ()
        if value is tensor or any(one is tensor for _, one in parts):
            yield name


def _updated(raised: Raised, tensor: torch.Tensor) -> tuple[str, Call | None]:
    """The leaf of its shape that a tensor was computed from, and the call that has read that since:
    as where a module reads its own weight and not the updated one that it was given."""
    if (made := tensor.grad_fn) is None:
        return "", None
    for node in graph.consumers([made]):
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf.shape == tensor.shape and node in raised.nodes:
            since = [
                one for one in raised.nodes[node] if not graph.is_older(one, made._sequence_nr())
            ]
            call = raised.context.call(since[0]) if since else None
            if call is not None and call.location is not None:
                return raised.name(leaf), call
    return "", None


def _reader(raised: Raised, tensor: torch.Tensor, *, copied: bool) -> Call | None:
    """The first op of the graph that has saved another tensor, of which this one is a view, or has
    `copied` a part."""
    is_of = _is_copy if copied else _is_view
    for node in reversed(raised.youngest_first):
        kept = (graph.saved(node, role) for role in graph.roles(node))
        if any(is_of(tensor, one) for one in kept if one is not None):
            return raised.context.call(node)
    return None


def _is_view(tensor: torch.Tensor, whole: torch.Tensor) -> bool:
    key = storage_key(tensor)
    return key is not None and key == storage_key(whole)


def _is_copy(tensor: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether a tensor that varies holds the numbers of one that no gradient goes to, or of a part
    of it along one dimension."""
    kinds = [(one.dtype, one.device, one.layout, one.dim()) for one in (tensor, whole)]
    if kinds[0] != kinds[1] or whole.requires_grad:
        return False
    sizes = zip(tensor.shape, whole.shape, strict=True)
    other = [dim for dim, (own, size) in enumerate(sizes) if own != size]
    if len(other) > 1 or not 1 < tensor.numel() <= whole.numel() <= _MOST_COMPARED:
        return False
    own = tensor.detach()
    if bool(own.min() == own.max()):
        return False
    dim = other[0] if other else 0
    starts = range(whole.shape[dim] - tensor.shape[dim] + 1)[:_MOST_PARTS]
    return any(torch.equal(own, whole.narrow(dim, at, tensor.shape[dim])) for at in starts)
